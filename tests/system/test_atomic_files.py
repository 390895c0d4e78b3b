"""One name, several writers: whole files and folders, of which exactly one gets a name that is free."""

import errno
import os

import pytest

from leapmpi.errors import DataError
from leapmpi.report.page import write_page
from leapmpi.system import atomic_files
from leapmpi.system.atomic_files import check_place, remove_abandoned, temporary_folder, written_aside


def fill(aside, kind, text):
    """Make a file, or a folder with a file in it, that holds `text`."""
    if kind == "folder":
        aside.mkdir()
        aside /= "content"
    aside.write_text(text)


def overtaken(path, kind, other):
    """Write `path`, a `kind`, while somebody else gives the name to an `other`."""
    with written_aside(path) as aside:
        fill(aside, kind, "mine")
        if other == "dangling link":
            path.symlink_to(path.with_name("nowhere"))
        else:
            fill(path, other, "theirs")


def content(path):
    return (path / "content" if path.is_dir() else path).read_text()


def refused(*_arguments, **_settings):
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.fixture(params=["links", "no links"])
def links(request, monkeypatch):
    """File systems with and without hard links."""
    if request.param == "no links":
        monkeypatch.setattr(os, "link", refused)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_of_two_writers_the_first_to_finish_gets_the_name(tmp_path, links, kind):
    path = tmp_path / "out"
    refusal = pytest.raises(DataError, match=r"out exists already: .* or pass --overwrite")
    with refusal, written_aside(path) as late:
        fill(late, kind, "late")
        with written_aside(path) as early:
            fill(early, kind, "early")
    assert content(path) == "early"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("other", ["file", "folder", "dangling link"])
def test_a_name_that_anything_else_has_taken_is_not_replaced(tmp_path, links, kind, other):
    path = tmp_path / "out"
    with pytest.raises(DataError, match="exists already"):
        overtaken(path, kind, other)
    assert os.listdir(tmp_path) == ["out"]
    assert path.is_symlink() or content(path) == "theirs"
    with pytest.raises(DataError, match="exists already"), written_aside(path):
        pytest.fail("a taken name is refused before any work")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_free_name_is_taken(tmp_path, links, kind):
    path = tmp_path / "out"
    if kind == "folder":
        path.mkdir()  # an empty folder holds nothing that could be lost
    atomic_files.put_in_place(_made(tmp_path / "aside", kind), path, replace=False)
    assert content(path) == "text"


def _made(path, kind):
    fill(path, kind, "text")
    return path


def test_a_link_whose_answer_was_lost_counts_as_made(tmp_path, monkeypatch):
    real = os.link

    def link(source, target):
        # As NFS does when the server's answer is lost and the client asks twice.
        real(source, target)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr(os, "link", link)
    with written_aside(tmp_path / "out") as aside:
        aside.write_text("mine")
    assert os.listdir(tmp_path) == ["out"]


def test_without_links_a_failure_frees_the_name(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(DataError, match="not allowed to write here"), written_aside(tmp_path / "out") as aside:
        aside.write_text("mine")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_replaced_is_that_of_the_last_writer(tmp_path, kind):
    path = _made(tmp_path / "out", kind)
    with written_aside(path, overwrite=True) as last:
        fill(last, kind, "last")
        with written_aside(path, overwrite=True) as first:
            fill(first, kind, "first")
        assert content(path) == "first"
    assert content(path) == "last"
    assert os.listdir(tmp_path) == ["out"]


def test_writers_that_replace_one_folder_at_the_same_moment_both_succeed(tmp_path, monkeypatch):
    path, real, nested = _made(tmp_path / "out", "folder"), os.replace, []

    def replace(source, target):
        real(source, target)
        # The old folder has just stepped aside: its place is free for another writer.
        if not nested and os.fspath(source) == os.fspath(path):
            nested.append(True)
            with written_aside(path, overwrite=True) as other:
                fill(other, "folder", "other")

    monkeypatch.setattr(os, "replace", replace)
    with written_aside(path, overwrite=True) as aside:
        fill(aside, "folder", "mine")
    assert nested
    assert content(path) == "mine"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_being_written_is_not_abandoned_at_any_moment(tmp_path, monkeypatch, kind):
    """Not before it is filled, and not while it is brought to disk."""
    path, real = tmp_path / "out", atomic_files._sync

    def sync(file):
        remove_abandoned(path)
        real(file)

    monkeypatch.setattr(atomic_files, "_sync", sync)
    with written_aside(path) as aside:
        remove_abandoned(path)
        fill(aside, kind, "mine")
    assert content(path) == "mine"


def test_a_folder_that_is_cleared_away_before_it_is_held_is_made_again(tmp_path, monkeypatch):
    path, real, seen = tmp_path / "out", os.open, []

    def opened(name, *rest, **settings):
        # Another process clears away what nobody holds, between the making of a folder and its lock.
        if not seen:
            seen.append(name)
            remove_abandoned(path)
            assert not name.exists()
            name.mkdir()  # by the time it is opened somebody may even have made it again
            descriptor = real(name, *rest, **settings)
            remove_abandoned(path)
            return descriptor
        return real(name, *rest, **settings)

    monkeypatch.setattr(os, "open", opened)
    with temporary_folder(path, "work") as folder:
        assert folder.is_dir()
        assert folder != seen[0]
        monkeypatch.undo()
        remove_abandoned(path)
        assert folder.is_dir()
    assert os.listdir(tmp_path) == []


def test_a_folder_that_stepped_aside_comes_back_unless_its_successor_stands(tmp_path):
    path = tmp_path / "data"

    def killed(number, text):
        # Killed after the old folder stepped aside and before the new one had its name.
        fill(tmp_path / f".data.partial-{number}-0a1b2c3d" / "data-old", "folder", text)

    for number, text in ((1, "first"), (2, "second")):
        (tmp_path / f".data.partial-{number}-0a1b2c3d").mkdir()
        killed(number, text)
        remove_abandoned(path)
        assert os.listdir(tmp_path) == ["data"]
        assert content(path) == "first"


def test_abandoned_folders_go_and_others_stay(tmp_path):
    names = [".g.h5.work-1-00000000", ".g.h5.partial-2", ".g.h5.work-x", ".other.h5.work-1-00000000"]
    for name in names:
        (tmp_path / name).mkdir()
    with temporary_folder(tmp_path / "g.h5", "work") as held:
        remove_abandoned(tmp_path / "g.h5")
        assert {entry.name for entry in tmp_path.iterdir()} == {*names[2:], held.name}
    assert not held.exists()


def test_a_name_that_is_too_long_gets_a_sentence(tmp_path):
    with pytest.raises(DataError, match=r"cannot be written \(File name too long\)"):
        check_place(tmp_path / ("x" * 300), overwrite=True)
    with pytest.raises(DataError, match=r"cannot be written \(File name too long\)"):
        write_page(tmp_path / ("x" * 300), "a page")
