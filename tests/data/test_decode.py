import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from ns3l.data.decode import MAX_PIXELS, Form, Header, ImageFault, Wanted, decode, opened, quiet_decoder, read_header
from ns3l.errors import DataError

COLOR = Form(8, 8, 3)
GREY = Form(8, 8, 1)


def plain(color: object, mode: str = "RGB", size: tuple[int, int] = (8, 8)) -> Image.Image:
    return Image.new(mode, size, color)


def saved(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)
    return path


def png(width: int, height: int, data: bytes = b"") -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("name", "image", "expected"),
    [
        ("rgb.png", plain((10, 200, 30)), (10, 200, 30)),
        ("rgb.bmp", plain((10, 200, 30)), (10, 200, 30)),
        ("rgb.tif", plain((10, 200, 30)), (10, 200, 30)),
        ("grey.png", plain(77, "L"), (77, 77, 77)),
        ("bits.png", plain(1, "1"), (255, 255, 255)),
        ("palette.png", plain((10, 200, 30)).quantize(4), (10, 200, 30)),
        ("palette.gif", plain((10, 200, 30)).quantize(4), (10, 200, 30)),
        ("clear.png", plain((10, 200, 30, 0), "RGBA"), (255, 255, 255)),
        ("half.png", plain((0, 0, 0, 128), "RGBA"), (127, 127, 127)),
        ("grey-alpha.png", plain((0, 0), "LA"), (255, 255, 255)),
        ("deep.png", Image.fromarray(np.full((8, 8), 0x80FF, np.uint16)), (128, 128, 128)),
        ("deep.tif", Image.fromarray(np.full((8, 8), 0x80FF, np.uint16)), (128, 128, 128)),
        ("int.tif", Image.fromarray(np.full((8, 8), 0x80FF, np.int32)), (128, 128, 128)),
        ("float.tif", Image.fromarray(np.full((8, 8), 0.5, np.float32)), (128, 128, 128)),
        ("cmyk.tif", plain((0, 255, 255, 0), "CMYK"), (255, 0, 0)),
    ],
)
def test_every_mode_becomes_the_color_that_is_seen(tmp_path, name, image, expected):
    row = decode(saved(tmp_path / name, image), COLOR)[1]
    assert row.shape == (8, 8, 3) and row.dtype == np.uint8
    assert np.abs(row.astype(int) - expected).max() <= 1


def test_cmyk_jpeg_keeps_its_color(tmp_path):
    row = decode(saved(tmp_path / "cmyk.jpg", plain((0, 255, 255, 0), "CMYK")), COLOR)[1]
    assert row[..., 0].min() > 200 and row[..., 1:].max() < 60


def test_a_transparent_palette_entry_becomes_white(tmp_path):
    image = plain(0, "P")
    image.putpalette([10, 20, 30] * 256)
    assert (decode(saved(tmp_path / "p.png", image, transparency=0), COLOR)[1] == 255).all()


def test_an_animation_gives_its_first_frame(tmp_path):
    frames = [plain((250, 0, 0)), plain((0, 250, 0)), plain((0, 0, 250))]
    row = decode(saved(tmp_path / "a.gif", frames[0], save_all=True, append_images=frames[1:]), COLOR)[1]
    assert row[0, 0].tolist() == [250, 0, 0]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_undone(tmp_path, orientation):
    """The picture as stored for an orientation, made by NumPy, comes back upright: red top left, green top right."""
    upright = np.zeros((4, 8, 3), np.uint8)
    upright[:2, :4, 0] = upright[:2, 4:, 1] = upright[2:, :4, 2] = 255
    undo = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.transpose(1, 0, 2),
        6: lambda a: np.rot90(a, 1),
        7: lambda a: np.rot90(a, 2).transpose(1, 0, 2),
        8: lambda a: np.rot90(a, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(undo(upright)))
    path = saved(tmp_path / "turned.png", stored, exif=exif)
    header, row = decode(path, Form(4, 8, 3))
    assert header == Header(8, 4, grey=False) == read_header(path)
    assert np.array_equal(row, upright)


def test_cropping_keeps_proportions_and_stretching_keeps_everything(tmp_path):
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 255
    path = saved(tmp_path / "wide.png", Image.fromarray(wide))
    assert (decode(path, Form(10, 10, 3))[1] == 255).all()
    stretched = decode(path, Form(10, 10, 3, "stretch"))[1]
    assert stretched[:, 0].max() < 30 and stretched[:, 5].min() > 225


def test_large_photographs_are_close_to_an_exact_reduction(tmp_path):
    ramp = np.linspace(0, 255, 1024).astype(np.uint8)
    image = np.stack([np.tile(ramp, (768, 1))] * 3, axis=2)
    row = decode(saved(tmp_path / "photo.jpg", Image.fromarray(image), quality=95), Form(24, 32, 3))[1]
    exact = image.reshape(24, 32, 32, 32, 3).mean(axis=(1, 3))
    assert np.abs(row - exact).max() < 6


def test_defaults_come_from_the_images():
    digit, photo = Header(28, 28, grey=True), Header(640, 480, grey=False)
    assert Wanted().form([digit, digit]) == Form(28, 28, 1)
    assert Wanted().form([digit, photo]) == Form(32, 32, 3)
    assert Wanted().form([photo, photo]) == Form(32, 32, 3)
    assert Wanted(size=(20, 30), channels=1).form() == Form(20, 30, 1)
    assert Wanted(size=64).form([digit]) == Form(64, 64, 1)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted(size=0, channels=3), "positive numbers of pixels, got 0 x 0"),
        (Wanted(size=(1, 2, 3), channels=3), "one whole number or"),
        (Wanted(size=8, channels=4), "1 .grey. or 3 .color., got 4"),
        (Wanted(size=8, channels=3, fit="squash"), "'crop' or 'stretch', got 'squash'"),
    ],
)
def test_impossible_wishes_are_refused(wanted, message):
    with pytest.raises(DataError, match=message):
        wanted.form()


def hostile(folder: Path) -> dict[str, tuple[Path, str]]:
    good = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(good, "PNG")
    jpeg = io.BytesIO()
    plain((1, 2, 3), size=(64, 64)).save(jpeg, "JPEG")
    contents = {
        "bomb.png": (png(60_000, 60_000), "too large"),
        "big.png": (png(10_000, 9_900), "too large"),
        "zero.png": (png(0, 0), "."),
        "cut.png": (good.getvalue()[:-2000], "cannot be decoded"),
        "cut.jpg": (jpeg.getvalue()[: len(jpeg.getvalue()) // 2], "cannot be decoded"),
        "text.png": (b"this is no image", "not an image"),
        "empty.png": (b"", "not an image"),
        "vector.png": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", "not an image"),
        "short.png": (png(64, 64, b"\0" * 10), "."),
    }
    for name, (content, _) in contents.items():
        (folder / name).write_bytes(content)
    loose = np.full((4, 4), 2.0, np.float32)
    Image.fromarray(loose).save(folder / "loose.tif")
    (folder / "folder.png").mkdir()
    others = {"loose.tif": "outside 0 to 1", "folder.png": "not a regular file", "gone.png": "No such file"}
    reasons = {name: reason for name, (_, reason) in contents.items()} | others
    return {name: (folder / name, reason) for name, reason in reasons.items()}


def test_hostile_files_end_in_a_fault_with_a_reason(tmp_path):
    with quiet_decoder():
        for name, (path, reason) in hostile(tmp_path).items():
            with pytest.raises(ImageFault, match=reason):
                print(name, decode(path, COLOR))


def test_the_bomb_limit_is_about_pixels_not_bytes(tmp_path):
    path = tmp_path / "bomb.png"
    path.write_bytes(png(MAX_PIXELS + 1, 1))
    with quiet_decoder(), pytest.raises(ImageFault, match="too large"):
        read_header(path)


def test_a_right_image_under_a_wrong_name_is_read(tmp_path):
    path = tmp_path / "really-a-png.jpg"
    path.write_bytes(saved(tmp_path / "x.png", plain((9, 9, 9))).read_bytes())
    assert (decode(path, COLOR)[1] == 9).all()


SEEDS = []
for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"):
    buffer = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(buffer, kind)
    SEEDS.append(buffer.getvalue())


@settings(max_examples=200)
@given(
    seed=st.sampled_from(SEEDS),
    places=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=8),
    cut=st.integers(0, 600),
)
def test_damaged_bytes_give_a_row_or_a_fault_and_nothing_else(seed, places, cut):
    content = bytearray(seed)
    for place, value in places:
        content[place % len(content)] = value
    from ns3l.data.decode import to_row

    with quiet_decoder():
        try:
            with opened(io.BytesIO(bytes(content[: max(1, len(content) - cut)]))) as image:
                assert to_row(image, GREY).shape == (8, 8, 1)
        except ImageFault as fault:
            assert str(fault)
