"""What a host knows about itself, on disk."""

import os

import pytest

from agentd.data_dir import DataDir, DataDirRefused, Identity, read_token_file, write_durably


def test_a_write_is_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "fact"
    write_durably(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError):
        write_durably(path, "new")
    assert path.read_text() == "old"


def test_a_short_write_is_gone_on_with(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:3]))
    write_durably(tmp_path / "fact", "a longer text")
    assert (tmp_path / "fact").read_text() == "a longer text"


def test_the_first_opener_has_it(tmp_path):
    data = DataDir.open(tmp_path / "d")
    with pytest.raises(DataDirRefused, match=str(os.getpid())):
        DataDir.open(tmp_path / "d")
    data.close()
    DataDir.open(tmp_path / "d").close()


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirRefused, match="file"):
        DataDir.open(tmp_path / "file" / "d")


def test_facts_are_kept_and_only_changes_are_written(tmp_path, monkeypatch):
    data = DataDir.open(tmp_path / "d")
    identity = data.save(Identity("n1", "u1"))
    identity = data.learn(identity, cluster_id="c", role="voter")
    monkeypatch.setattr("agentd.data_dir.write_durably", lambda *_: pytest.fail("wrote what it knew"))
    assert data.learn(identity, cluster_id="c") == identity == data.identity()
    data.close()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_token_for_one_pair_of_eyes(tmp_path, mode):
    path = tmp_path / "token"
    path.write_text("x" * 43 + "\n")
    path.chmod(mode)
    with pytest.raises(DataDirRefused, match="chmod 600"):
        read_token_file(path)
    path.chmod(0o600)
    assert read_token_file(path) == "x" * 43


@pytest.mark.parametrize("text", ["", "short", "x" * 43 + "\ny", "x" * 200, "ü" * 43])
def test_what_is_no_token(tmp_path, text):
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(DataDirRefused, match="token"):
        read_token_file(path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"format": 1}',
        '{"format": 2, "node_id": "n1", "uid": "u"}',
        '{"node_id": "n1", "uid": "u"}',
        '{"format": 1, "node_id": "n1", "uid": "u", "odd": 1}',
    ],
)
def test_a_directory_that_is_not_ours_is_left_as_it_is(tmp_path, content):
    data = DataDir.open(tmp_path / "d")
    (data.root / "node.json").write_text(content)
    with pytest.raises(DataDirRefused, match=r"node\.json"):
        data.identity()
    assert (data.root / "node.json").read_text() == content
    data.close()
