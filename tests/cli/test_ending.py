"""Exit codes and messages: no traceback for a user's mistake, and none is lost with --debug."""

import errno
import sys
import warnings

import pytest
from tests.cli.terminal import ns3l

from ns3l.cli import main
from ns3l.cli.ending import RunFailed, ending, running, told
from ns3l.errors import DataError, RunError
from ns3l.train import Stopped


@pytest.mark.parametrize(
    ("problem", "code", "words"),
    [
        (DataError("no such thing"), 2, "no such thing"),
        (RunFailed("lost"), 1, "lost"),
        (Stopped(130), 130, "same command again"),
        (Stopped(143), 143, "same command again"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.csv"), 2, "a.csv: no such file"),
        (PermissionError(errno.EACCES, "Permission denied", "a.csv"), 2, "a.csv: permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "no space left"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 2, "disk quota exceeded"),
        (OSError(errno.EBADF, "Bad file descriptor"), 1, "--debug"),
        (ModuleNotFoundError("No module named 'onnx'", name="onnx"), 2, "pip install 'ns3l[onnx]'"),
        (ModuleNotFoundError("No module named 'ray'", name="ray.util"), 2, "pip install 'ns3l[ray]'"),
        (ModuleNotFoundError("No module named 'x'", name="x"), 1, "--debug"),
        (ZeroDivisionError("division by zero"), 1, "unexpected ZeroDivisionError: division by zero"),
    ],
)
def test_every_end_has_its_code_and_words(problem, code, words):
    got, message = told(problem)
    assert got == code
    assert words in message


def test_unknown_data_names_the_nearest():
    ended = ns3l("train", "cifra10")
    assert ended.code == 2
    assert "did you mean cifar10" in ended.err
    assert "Traceback" not in ended.err + ended.out


def test_known_data_that_is_missing_says_how_to_get_it(tmp_path):
    ended = ns3l("train", "cifar10", "--root", tmp_path)
    assert ended.code == 2
    assert f"ns3l data fetch cifar10 --root {tmp_path}" in ended.err


def test_wrong_words_are_wrong_use():
    assert ns3l("trian").code == 2
    assert "train" in ns3l("trian").err
    assert ns3l("train").code == 2
    assert ns3l("train", "digits", "--steps", "many").code == 2


def test_no_words_and_h_show_help_and_the_version_is_said_alone():
    assert "Commands" in ns3l().out + ns3l().err
    assert ns3l("-h").out == ns3l("--help").out
    assert ns3l("train", "-h").code == 0
    version = ns3l("--version", "train", "cifra10")
    assert (version.code, version.err) == (0, "") and version.out.startswith("ns3l ")


def test_debug_shows_the_traceback():
    with pytest.raises(DataError):
        main(["train", "cifra10", "--debug"])


@pytest.mark.parametrize(
    "words", [["train", ""], ["predict", "", "x.npy"], ["report", ""], ["train", "--out", "", "digits"]]
)
def test_an_empty_word_is_not_the_current_folder(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = ns3l(*words)
    assert ended.code == 2
    assert f"expected a word after {words[words.index('') - 1]}, got an empty one" in ended.err


def test_running_makes_a_run_error_a_failed_run():
    with pytest.raises(RunFailed, match="memory"), running():
        raise RunError("does not fit into memory")


def test_a_warning_is_one_line_said_once(capsys):
    shown = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before = warnings.showwarning
        with ending():
            for _ in range(2):
                warnings.warn("mind this", stacklevel=1)
        assert warnings.showwarning is before
    assert capsys.readouterr().err == "ns3l: warning: mind this\n"
    assert warnings.showwarning is shown


def test_only_the_first_process_of_a_job_prints(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit, match="2"), ending():
        print("progress")
        print("a note", file=sys.stderr)
        warnings.showwarning(UserWarning("mind this"), UserWarning, "file", 1)
        raise DataError("wrong")
    assert capsys.readouterr() == ("", "")
    with pytest.raises(SystemExit, match="1"), ending():
        raise RunFailed("a process was lost")
    assert "a process was lost" in capsys.readouterr().err
    assert sys.stdout.writable()
