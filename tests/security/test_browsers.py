"""Attacks by way of a browser, of addresses and of names: pages that are none, tokens where others read them, what a
refusal gives away."""

import json
import logging
import sys

import pytest

from agentd.http.openapi import operations, spellings
from tests.integration.served_api import AUTH, TOKEN, document, served
from tests.security.people import bearer, filled, people
from tests.unit.house.test_openapi import TABLES

HTML = "<script>fetch('//evil.example')</script><img src=x onerror=alert(1)>"
SAFE_KINDS = (
    "application/json",
    "application/msgpack",
    "application/x-ndjson",
    "application/octet-stream",
    "text/plain; version=0.0.4; charset=utf-8",
)
ROUTES = [(method, path) for method, given, _ in operations(TABLES) for path, _ in spellings(given)]


@pytest.mark.attack(35)
async def test_no_answer_is_a_page_whatever_a_browser_asks_for(tmp_path, attempts):
    asks = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "User-Agent": "Mozilla/5.0"}
    async with served(tmp_path) as client:
        body = document("page") | {"notes": HTML, "labels": {"a": HTML}}
        async with client.post("/api/v1/task-groups", json=body, headers=AUTH) as response:
            assert response.status == 201, await response.text()
            group_id = (await response.json())["group_id"]
        for who in (AUTH, {}):
            for method, path in ROUTES:
                for place in (filled(path, group_id), filled(path, "%3Cscript%3E")):
                    attempts["requests"] += 1
                    target = f"{place}?name={HTML}&consistency=stale"
                    async with client.request(method, target, headers=asks | who) as response:
                        kind = response.headers.get("Content-Type", "")
                        # An answer without a body has no type, and nothing to be taken for one.
                        assert kind.startswith(SAFE_KINDS) or await response.read() == b"", (method, path, kind)
                        assert response.headers["X-Content-Type-Options"] == "nosniff", (method, path)
                        assert "Set-Cookie" not in response.headers


@pytest.mark.attack(33)
async def test_a_foreign_name_opens_no_route(tmp_path, attempts):
    async with served(tmp_path) as client:
        for host in (
            "evil.example",
            "127.0.0.1.evil.example:7460",
            "localhost.evil.example",
            "0x7f.1",
            "[::ffff:8.8.8.8]",
        ):
            for method, path in ROUTES:
                attempts["requests"] += 1
                async with client.request(method, filled(path, "tg-x"), headers=AUTH | {"Host": host}) as response:
                    assert response.status == 421, (host, method, path)


@pytest.mark.attack(36)
async def test_a_token_is_taken_from_its_header_alone(tmp_path, attempts):
    async with served(tmp_path) as client:
        for name in ("token", "access_token", "api_key", "apikey", "key", "auth", "authorization", "bearer"):
            for value in (TOKEN, f"Bearer {TOKEN}"):
                attempts["requests"] += 3
                async with client.get("/api/v1/nodes", params={name: value}) as response:
                    assert response.status == 401, name
                async with client.get("/api/v1/nodes", headers={f"X-{name}": value}) as response:
                    assert response.status == 401, name
                async with client.get("/api/v1/nodes", headers={"Cookie": f"{name}={TOKEN}"}) as response:
                    assert response.status == 401, name
        for scheme in ("Basic", "Digest", "Token", "Negotiate", ""):
            attempts["requests"] += 1
            async with client.get("/api/v1/nodes", headers={"Authorization": f"{scheme} {TOKEN}".strip()}) as response:
                assert response.status == 401, scheme


@pytest.mark.attack(34, 36)
async def test_no_request_leaves_a_token_in_a_log(tmp_path, caplog, attempts):
    caplog.set_level(logging.DEBUG)
    async with people(tmp_path) as found:
        secret = found.keys["member.red"]
        for path in ("/api/v1/nodes", "/api/v1/none", f"/api/v1/task-groups?name={secret}", f"/api/v1/{secret}"):
            for headers in (bearer(secret), bearer(secret + "x"), bearer(TOKEN), {}):
                attempts["requests"] += 1
                async with found.client.get(path, headers=headers) as response:
                    await response.read()
        said = "\n".join(
            json.dumps(vars(record), default=str) for record in caplog.records if "client" not in record.name
        )
        assert secret not in said and TOKEN not in said and secret.split("_", 2)[2] not in said


@pytest.mark.attack(11)
@pytest.mark.parametrize("name", ["../../etc/passwd", "a\0b", "a\r\nSet-Cookie: x=1", "..\\..\\x", "a" * 5000, "CON"])
async def test_no_route_takes_an_upload_and_no_name_comes_back_in_a_header(tmp_path, name, attempts):
    async with served(tmp_path) as client:
        for method, path in ROUTES:
            if method not in ("POST", "PUT", "PATCH"):
                continue
            attempts["uploads"] += 1
            part = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\nbytes\r\n--x--\r\n'
            kind = {"Content-Type": "multipart/form-data; boundary=x"}
            async with client.request(method, filled(path), data=part.encode(), headers=AUTH | kind) as response:
                assert 400 <= response.status < 600 and response.status != 500, (method, path, response.status)
                for value in response.headers.values():
                    assert "passwd" not in value and "Set-Cookie" not in value
        body = document() | {"name": name}
        async with client.post("/api/v1/task-groups", json=body, headers=AUTH) as response:
            if not name.isprintable() or len(name) > 128:
                assert response.status == 400
            assert not {value for value in response.headers.values() if "\r" in value or "\n" in value or "\0" in value}
    assert not (tmp_path.parent / "passwd").exists()


OUTSIDE = ["/etc/passwd", "/etc", "/root/.ssh/id_ed25519", "/proc/1/environ", "/nonexistent-4711", "/etc/nonexistent"]
_opened: list[str] = []


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and arguments and str(arguments[0]).startswith(tuple(OUTSIDE)):
        _opened.append(f"{event} {arguments[0]}")


@pytest.mark.attack(1, 7)
async def test_what_is_outside_is_refused_alike_whether_it_exists_and_never_looked_at(tmp_path, attempts):
    """Paths are judged as text before anything is opened: a refusal tells nothing of the host."""
    sys.addaudithook(_heard)
    _opened.clear()
    said = set()
    async with served(tmp_path) as client:
        for path in OUTSIDE:
            for field in ("checkpoint_path", "dataset_path", "resume_from_checkpoint"):
                attempts["documents"] += 1
                body = document(**{field: path})
                async with client.post("/api/v1/task-groups", json=body, headers=AUTH) as response:
                    assert response.status == 400
                    findings = [
                        (one["code"], one["message"].replace(path, "PATH"), one["hint"].replace(path, "PATH"))
                        for one in (await response.json())["findings"]
                        if one["path"].endswith(field)
                    ]
                    said.add((field, json.dumps(findings)))
    assert len(said) == 3, said
    assert _opened == []


@pytest.mark.attack(7, 26)
async def test_what_another_tenant_has_is_refused_as_what_nobody_has(tmp_path, attempts):
    async with people(tmp_path) as found:
        theirs, nobodys = found.groups["blue"], "tg-" + "0" * 20
        for method, path in ROUTES:
            if "{group_id}" not in path or path.startswith("/mesh/") or path.endswith("/exec"):
                continue
            attempts["requests"] += 1
            answers = []
            for group_id in (theirs, nobodys):
                async with found.client.request(
                    method, filled(path, group_id), headers=found.auth("member.red")
                ) as response:
                    text = (await response.text()).replace(group_id, "GROUP")
                    answers.append((response.status, response.headers.get("Content-Type"), text))
            assert answers[0] == answers[1], (method, path, answers)
