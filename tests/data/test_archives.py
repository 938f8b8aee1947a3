"""Archives of strangers: unpacked inside the target or refused, and never half there."""

import gzip
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ns3l.data.archives import Limits, read_gzip, unpack
from ns3l.errors import DataError


def tar(path: Path, *members: tuple[str, bytes] | tarfile.TarInfo, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return path


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def only_archive(folder: Path, archive: Path) -> bool:
    return sorted(folder.iterdir()) == [archive]


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_tar(tmp_path: Path, mode: str) -> None:
    folder = special("set/", tarfile.DIRTYPE)
    archive = tar(
        tmp_path / "a.tar", special(".", tarfile.DIRTYPE), folder, ("set/x", b"1"), ("./set/y", b""), mode=mode
    )
    unpack(archive, tmp_path / "out", inside="set")
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == {"x": b"1", "y": b""}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar", "out"]


def test_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("set/deep/x", b"123")
        archive.mkdir("set/empty")
    unpack(tmp_path / "a.zip", tmp_path / "out")
    assert (tmp_path / "out/set/deep/x").read_bytes() == b"123" and (tmp_path / "out/set/empty").is_dir()


def test_file_modes_of_the_archive_are_not_taken(tmp_path: Path) -> None:
    info = tarfile.TarInfo("set/x")
    info.mode = 0o6777
    unpack(tar(tmp_path / "a.tar", info), tmp_path / "out")
    assert not (tmp_path / "out/set/x").stat().st_mode & (stat.S_ISUID | stat.S_IXUSR)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\\..\\x", "c:/x", "a" * 300, "/".join("a" * 40)])
def test_tar_names_that_lead_out(tmp_path: Path, name: str) -> None:
    archive = tar(tmp_path / "a.tar.gz", ("set/good", b"1"), (name, b"2"))
    with pytest.raises(DataError, match=r"a\.tar\.gz: a member is named .* could lead out of the target"):
        unpack(archive, tmp_path / "out")
    assert only_archive(tmp_path, archive)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_zip_names_that_lead_out(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, b"1")
    with pytest.raises(DataError, match="could lead out of the target"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert only_archive(tmp_path, tmp_path / "a.zip")


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (special("set/l", tarfile.SYMTYPE, "/etc/passwd"), "is a link"),
        (special("set/l", tarfile.LNKTYPE, "set/x"), "is a link"),
        (special("set/f", tarfile.FIFOTYPE), "neither a file nor a folder"),
        (special("set/d", tarfile.CHRTYPE), "neither a file nor a folder"),
        (special("set/s", tarfile.GNUTYPE_SPARSE), "cannot be unpacked|neither"),
    ],
)
def test_tar_of_other_things(tmp_path: Path, member: tarfile.TarInfo, message: str) -> None:
    archive = tar(tmp_path / "a.tar.gz", ("set/x", b"1"), member)
    with pytest.raises(DataError, match=message):
        unpack(archive, tmp_path / "out")
    assert only_archive(tmp_path, archive)


def test_zip_link(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("set/l")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="is a link or a device"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_same_name_twice(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar", ("set/x", b"1"), ("set/x", b"2"))
    with pytest.raises(DataError, match=r"a\.tar: x exists twice in it"):
        unpack(archive, tmp_path / "out")
    assert only_archive(tmp_path, archive)


def test_archive_without_a_needed_file_leaves_nothing(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar", ("set/x", b"1"), special("set/y", tarfile.DIRTYPE))
    with pytest.raises(DataError, match=r"a\.tar: y, z missing in it"):
        unpack(archive, tmp_path / "out", inside="set", needed=("x", "y", "z"))
    assert only_archive(tmp_path, archive)
    assert unpack(archive, tmp_path / "out", inside="set", needed=("x",)).is_dir()


def test_bombs(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar.gz", ("set/x", bytes(200_000)), ("set/y", bytes(200_000)))
    with pytest.raises(DataError, match="unpacks to more than 300,000 bytes"):
        unpack(archive, tmp_path / "out", limits=Limits(bytes=300_000))
    with pytest.raises(DataError, match="more than 1 members"):
        unpack(archive, tmp_path / "out", limits=Limits(members=1))
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("x", bytes(400_000))
    with pytest.raises(DataError, match="unpacks to more than 300,000 bytes"):
        unpack(tmp_path / "b.zip", tmp_path / "out", limits=Limits(bytes=300_000))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar.gz", "b.zip"]


def test_header_that_asks_for_much_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("long")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    with gzip.open(tmp_path / "a.tar.gz", "wb") as out:
        out.write(header.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
    with pytest.raises(DataError, match="asks for 8,589,934,592 bytes at once"):
        unpack(tmp_path / "a.tar.gz", tmp_path / "out")


def test_much_after_the_end(tmp_path: Path) -> None:
    content = tar(tmp_path / "a.tar", ("set/x", b"1"), mode="w").read_bytes()
    with gzip.open(tmp_path / "a.tar", "wb", compresslevel=1) as out:
        out.write(content + bytes(70 << 20))
    with pytest.raises(DataError, match="much follows after the end"):
        unpack(tmp_path / "a.tar", tmp_path / "out")


@pytest.mark.parametrize("make", [lambda b: b[:-1], lambda b: b[: len(b) // 2], lambda b: b[:20], lambda b: b""])
def test_cut_off(tmp_path: Path, make: Callable[[bytes], bytes]) -> None:
    archive = tar(tmp_path / "a.tar.gz", ("set/x", os.urandom(50_000)), ("set/y", os.urandom(50_000)))
    archive.write_bytes(make(archive.read_bytes()))
    with pytest.raises(DataError, match="cut off or damaged: get it anew"):
        unpack(archive, tmp_path / "out")
    assert only_archive(tmp_path, archive)


def test_changed_byte(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar.gz", ("set/x", os.urandom(50_000)))
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        unpack(archive, tmp_path / "out")
    assert only_archive(tmp_path, archive)


def test_wrong_content_or_target(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar.gz", ("other/x", b"1"))
    with pytest.raises(DataError, match="no folder 'set' in it"):
        unpack(archive, tmp_path / "out", inside="set")
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="is in the way"):
        unpack(archive, tmp_path / "out")
    (tmp_path / "page").write_text("<html>not found</html>")
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(tmp_path / "page", tmp_path / "new")


def test_read_gzip(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(5_000_000)))
    assert len(read_gzip(path)) == 5_000_000
    with pytest.raises(DataError, match="more than 1,000,000 bytes"):
        read_gzip(path, limit=1_000_000)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match="cut off or damaged"):
        read_gzip(path)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_archives_never_escape(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    zipped = data.draw(st.booleans())
    path = folder / "archive"
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("set/x", b"some content")
    else:
        tar(path, ("set/x", b"some content"), mode="w")
    content = bytearray(path.read_bytes())[:1100]
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        unpack(path, folder / "out")
    except DataError:
        assert only_archive(folder, path)
