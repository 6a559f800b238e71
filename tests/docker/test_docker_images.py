"""Images of a registry: who is asked when, what each failure is called, and what is known of the image that runs."""

import asyncio
import base64
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentd.runtime.base import ContainerOptions, ImageUnavailable
from agentd.runtime.docker import image as image_rules
from tests.docker.engine import docker, engine_socket
from tests.docker.hosts import LOOP, DockerHost, docker_host
from tests.docker.registry import Registry, serving
from tests.waiting import eventually

pytestmark = [pytest.mark.need("docker"), pytest.mark.slow, pytest.mark.timeout(180)]
PASSWORD = "s3cr3t-" + secrets.token_hex(4)


@pytest.fixture
async def host() -> AsyncIterator[DockerHost]:
    async with docker_host() as made:
        yield made


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as made:
        yield made


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow one another at once."""
    monkeypatch.setattr(image_rules, "_PAUSES_S", (0.01, 0.01))


async def get(host: DockerHost, image: str, pull: str = "missing", said: list[str] | None = None) -> None:
    options = ContainerOptions(image=image, pull=pull)  # type: ignore[arg-type]  # one of the literals
    await host.runtime.get_image(options, (said if said is not None else []).append)


async def refusal(host: DockerHost, image: str, pull: str = "missing") -> ImageUnavailable:
    with pytest.raises(ImageUnavailable) as refused:
        await get(host, image, pull)
    return refused.value


async def test_each_policy_asks_the_registry_when_it_should(host: DockerHost, registry: Registry) -> None:
    first = registry.push("team/pt:1", "one")
    image = f"{registry.name}/team/pt:1"
    assert "pull is `never`" in str(await refusal(host, image, "never"))
    assert registry.asked == []
    said: list[str] = []
    await get(host, image, "missing", said)
    assert said[0] == f"pulling image {image}"
    asked = len(registry.asked)
    assert asked
    second = registry.push("team/pt:1", "two")
    for policy in ("missing", "never"):
        await get(host, image, policy)
    assert len(registry.asked) == asked
    await host.start("cat /made", image=image)
    seen = await host.until("exited")
    assert (host.lines(), (seen.image or {})["digest"]) == (["one"], first)
    await get(host, image, "always")
    await host.start("cat /made", rank=1, image=image)
    again = await host.until("exited", 1)
    assert (host.lines(1), (again.image or {})["digest"]) == (["two"], second)
    assert (again.image or {})["id"] != (seen.image or {})["id"]


async def test_an_image_by_digest_is_that_image(host: DockerHost, registry: Registry) -> None:
    digest = registry.push("team/pt:1", "one")
    registry.push("team/pt:1", "two")
    image = f"{registry.name}/team/pt@{digest}"
    await get(host, image)
    await host.start("cat /made", image=image)
    seen = await host.until("exited")
    assert (host.lines(), (seen.image or {})["digest"]) == (["one"], digest)


async def test_an_image_that_no_registry_gave_has_no_digest(host: DockerHost) -> None:
    await host.start("true")
    seen = await host.until("exited")
    assert seen.image is not None
    assert seen.image["id"].startswith("sha256:") and seen.image["digest"] is None  # type: ignore[union-attr]  # None fails too


async def test_no_such_tag_is_permanent_and_asked_once(host: DockerHost, registry: Registry, soon: None) -> None:
    registry.push("team/pt:1")
    refused = await refusal(host, f"{registry.name}/team/pt:2")
    assert (refused.code, refused.permanent) == ("image_pull_permanent", True)
    assert "no such image or tag" in str(refused) and f"{registry.name}/team/pt:2" in str(refused)
    assert len([path for path in registry.asked if path.endswith("/2")]) <= 2


async def test_a_registry_that_is_ill_is_asked_again_and_comes_back(
    host: DockerHost, registry: Registry, soon: None
) -> None:
    registry.push("team/pt:1")
    registry.broken = 503
    refused = await refusal(host, f"{registry.name}/team/pt:1")
    assert (refused.code, refused.permanent) == ("image_pull_transient", False)
    said: list[str] = []

    def heal(text: str) -> None:
        said.append(text)
        if "trying again" in text:
            registry.broken = 0

    await host.runtime.get_image(ContainerOptions(image=f"{registry.name}/team/pt:1"), heal)
    assert any("trying again" in text for text in said)


async def test_a_registry_that_is_not_there_is_said_so(host: DockerHost, soon: None) -> None:
    refused = await refusal(host, "127.0.0.1:1/team/pt:1")
    assert (refused.code, refused.permanent) == ("image_pull_transient", False)
    assert "the registry is not there" in str(refused)


async def test_a_name_that_nobody_knows_is_said_so(host: DockerHost, soon: None) -> None:
    refused = await refusal(host, "no-such-registry.invalid:5000/team/pt:1")
    assert not refused.permanent
    assert "cannot resolve" in str(refused)


async def test_a_registry_that_never_answers_is_given_up(
    host: DockerHost, registry: Registry, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.holding = True
    monkeypatch.setattr(image_rules, "PULL_SILENT_S", 1.0)
    refused = await refusal(host, f"{registry.name}/team/pt:1")
    assert (refused.code, refused.permanent) == ("image_pull_transient", False)
    assert "does not answer in time" in str(refused)
    assert host.runtime.trouble == ""


async def test_a_claim_that_is_dropped_while_its_image_comes_leaves_nothing(
    host: DockerHost, registry: Registry
) -> None:
    registry.push("team/pt:1")
    registry.holding = True
    said: list[str] = []
    claim = asyncio.create_task(get(host, f"{registry.name}/team/pt:1", "missing", said))

    async def pulling() -> bool:
        return bool(said)

    await eventually("the pull to be said", pulling)
    begun = time.monotonic()
    claim.cancel()
    await asyncio.wait([claim])
    assert claim.cancelled() and time.monotonic() - begun < 5
    registry.let_go.set()
    assert docker("ps", "--all", "--quiet", "--filter", f"label=io.heteroflow.group={host.group}") == ""


# -- logins


def log_in(directory: Path, **passwords: str) -> Path:
    """A config.json as `docker login` writes it. passwords: by registry, for the user ada."""
    auths = {name: {"auth": base64.b64encode(f"ada:{word}".encode()).decode()} for name, word in passwords.items()}
    path = directory / "config.json"
    path.write_text(json.dumps({"auths": auths}))
    path.chmod(0o600)
    return path


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path


async def test_pulls_at_the_same_time_use_each_its_own_login_and_leave_none_behind(
    host: DockerHost, config: Path, caplog: pytest.LogCaptureFixture, soon: None
) -> None:
    """B075: somebody logs in and out of another registry meanwhile; no entry of anybody is written or lost by us."""
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    with serving({"ada": PASSWORD}) as one, serving({"ada": PASSWORD + "2"}) as two:
        images = []
        for registry in (one, two):
            registry.push("team/pt:1", registry.name)
            images.append(f"{registry.name}/team/pt:1")
        log_in(config, **{one.name: PASSWORD, two.name: PASSWORD + "2"})
        for registry in (one, two):
            registry.holding = True
        pulls = [asyncio.create_task(get(host, image, "missing", said)) for image in images]

        async def both() -> bool:
            return one.requests > 0 and two.requests > 0

        # By then the engine has what it needs for each.
        await eventually("both registries to be asked", both)
        other = log_in(config, **{"elsewhere.example": "x"})
        before = other.read_bytes()
        for registry in (one, two):
            registry.holding = False
            registry.let_go.set()
        await asyncio.gather(*pulls)
        assert other.read_bytes() == before
        assert [path.name for path in config.iterdir()] == ["config.json"]
        # Logged out: what is here may be used, as the docs say; the registry gives nothing more.
        await get(host, images[0], "missing")
        refused = await refusal(host, images[0], "always")
        assert (refused.code, refused.permanent) == ("image_pull_permanent", True)
        assert "docker login" in str(refused)
    coded = base64.b64encode(f"ada:{PASSWORD}".encode()).decode()
    for text in (*said, caplog.text, str(refused)):
        assert PASSWORD not in text and coded not in text


@pytest.mark.attack(34)
async def test_a_wrong_password_is_permanent_and_not_shown(host: DockerHost, config: Path, soon: None) -> None:
    with serving({"ada": "right"}) as registry:
        registry.push("team/pt:1")
        log_in(config, **{registry.name: PASSWORD})
        refused = await refusal(host, f"{registry.name}/team/pt:1")
    assert (refused.code, refused.permanent) == ("image_pull_permanent", True)
    assert PASSWORD not in str(refused)


@pytest.mark.parametrize(
    "damage",
    ["garbage{", "[]", '{"auths": {"127.0.0.1:1": {"auth": "!"}}}', '{"credsStore": "no-such-program"}', "{}"],
)
async def test_a_damaged_file_of_logins_is_no_engine_that_is_down(
    host: DockerHost, config: Path, soon: None, damage: str
) -> None:
    (config / "config.json").write_text(damage)
    await host.start(LOOP)
    await host.says("up")
    assert await host.runtime.engine.ping()
    refused = await refusal(host, "127.0.0.1:1/team/pt:1")
    assert not refused.permanent
    assert "config.json" in str(refused) or "is not there" in str(refused)


# -- what an image may lack


@pytest.fixture(scope="module")
def bare_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One program and no shell."""
    import shutil
    import subprocess

    tree = tmp_path_factory.mktemp("bare")
    busybox = shutil.which("busybox")
    assert busybox is not None
    shutil.copy(busybox, tree / "busybox")
    name = "heteroflow-test:bare"
    packed = subprocess.run(["tar", "-C", str(tree), "-c", "."], check=True, capture_output=True).stdout
    command = ["docker", "--host", f"unix://{engine_socket()}", "import", "-", name]
    subprocess.run(command, input=packed, check=True, capture_output=True)
    yield name
    docker("image", "rm", "--force", name)


async def test_an_image_without_a_shell_runs_a_list_and_says_what_it_lacks_for_text(
    host: DockerHost, bare_image: str
) -> None:
    spec = host.spec("", image=bare_image)
    await host.start_as(spec, argv=("/busybox", "echo", "here"))
    assert (await host.until("exited")).exit_code == 0
    assert host.lines() == ["here"]
    await host.start("echo here", rank=1, image=bare_image)
    seen = await host.until("exited", 1)
    assert seen.why == "start_failed"
    assert "/bin/sh" in seen.text


@pytest.mark.parametrize(
    ("argv", "options", "word"),
    [
        (("no-such-program", "-x"), {}, "no-such-program"),
        (("/tmp",), {}, "/tmp"),
        (("true",), {"user": "nobody-here"}, "nobody-here"),
    ],
)
async def test_what_cannot_be_run_is_named(
    host: DockerHost, argv: tuple[str, ...], options: dict[str, Any], word: str
) -> None:
    await host.start_as(host.spec("", **options), argv=argv)
    seen = await host.until("exited")
    assert (seen.why, seen.exit_code) == ("start_failed", None)
    assert word in seen.text
