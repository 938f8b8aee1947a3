"""MNIST (LeCun et al., 1998) and Fashion-MNIST (Xiao et al., 2017), from the official idx files, gzipped or not."""

import math
import os
from pathlib import Path

import numpy as np

from ns3l.data.archives import read_gzip
from ns3l.data.dataset import Dataset
from ns3l.data.download import Remote
from ns3l.data.known import Known, Layout, Official
from ns3l.errors import DataError

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
MAX_BYTES = 1 << 30
FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def _remotes(folder: str, addresses: tuple[str, ...], sums: tuple[tuple[str, int], ...]) -> tuple[Remote, ...]:
    return tuple(
        Remote(f"{folder}/{name}.gz", tuple(f"{address}{name}.gz" for address in addresses), f"sha256:{checksum}", size)
        for name, (checksum, size) in zip(FILES, sums, strict=True)
    )


MNIST = Known(
    name="mnist",
    layouts=(Layout("MNIST/raw", FILES, gz=True),),
    remotes=_remotes(
        "MNIST/raw",
        (
            "http://yann.lecun.com/exdb/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        (
            ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422),
            ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881),
            ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877),
            ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
        ),
    ),
    official=Official(
        train=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        test=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    ),
)
FASHION_MNIST = Known(
    name="fashion-mnist",
    layouts=(Layout("FashionMNIST/raw", FILES, gz=True),),
    remotes=_remotes(
        "FashionMNIST/raw",
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        ),
        (
            ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26_421_880),
            ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29_515),
            ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4_422_102),
            ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148),
        ),
    ),
    official=Official(train=(6000,) * 10, test=(1000,) * 10),
    system=("/usr/share/datasets/fashion-mnist",),
)


def load_mnist(root: str | os.PathLike[str] | None = None) -> Dataset:
    """MNIST: 60,000 training and 10,000 test digits, 28x28 in gray."""
    return _load(MNIST, root, tuple("0123456789"))


def load_fashion_mnist(root: str | os.PathLike[str] | None = None) -> Dataset:
    """Fashion-MNIST: 60,000 training and 10,000 test pictures of clothes, 28x28 in gray."""
    return _load(FASHION_MNIST, root, FASHION_CLASSES)


def _load(known: Known, root: str | os.PathLike[str] | None, classes: tuple[str, ...]) -> Dataset:
    layout, folder = known.find(root)
    paths = [path for name in FILES if (path := layout.file(folder, name))]
    x, y, x_test, y_test = (read_idx(path, axes) for path, axes in zip(paths, (3, 1, 3, 1), strict=True))
    for path, images, labels in ((paths[0], x, y), (paths[2], x_test, y_test)):
        if len(images) != len(labels):
            raise DataError(f"{path}: {len(images):,} images, but {len(labels):,} labels beside it")
    test = (x_test[..., None], y_test.astype(np.int64))
    return known.remind(Dataset(known.name, x[..., None], y.astype(np.int64), classes, *test))


def read_idx(path: Path, axes: int) -> np.ndarray:
    """The unsigned bytes of an idx file with that many axes, plain or gzipped, without a copy."""
    zipped = path.suffix == ".gz"
    content = np.frombuffer(read_gzip(path, MAX_BYTES), np.uint8) if zipped else np.fromfile(path, np.uint8)
    head = 4 + 4 * axes
    if len(content) < head or content[:4].tolist() != [0, 0, 8, axes]:
        raise DataError(f"{path}: not an idx file of unsigned bytes with {axes} axes; get it anew")
    shape = tuple(int(n) for n in content[4:head].view(">u4"))
    if math.prod(shape) != len(content) - head:
        raise DataError(f"{path}: {len(content) - head:,} bytes, but its header says {shape}: cut off or damaged")
    return content[head:].reshape(shape)
