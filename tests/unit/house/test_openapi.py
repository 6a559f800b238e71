"""The description of the API, and the page made of it, have every route and no other."""

import json

import jsonschema_rs
import pytest
from aiohttp import web

from agentd.cli import main
from agentd.http.app import MODULES, api_description
from agentd.http.description import description_of
from agentd.http.openapi import openapi, operations, spellings
from schemas.task_group import DOCUMENT, check_task_group
from scripts.docs_api import PATH, api_page

TABLES = [module.routes for module in MODULES]


def described_routes() -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, methods in api_description()["paths"].items() for method in methods}


def test_every_registered_route_is_described_and_the_reverse():
    app = web.Application()
    for table in TABLES:
        app.add_routes(table)
    registered = set()
    for route in app.router.routes():
        info = route.resource.get_info()
        if "formatter" in info:
            # What the router knows of a place that takes a few words is its pattern alone.
            paths = [
                p for _, path, handler in operations(TABLES) if handler is route.handler for p, _ in spellings(path)
            ]
        else:
            paths = [info["path"]]
        registered |= {(route.method, path) for path in paths if route.method != "HEAD"}
    assert registered == described_routes() and len(registered) > 20


ROUTES = [pytest.param(*route, id=f"{route[0]} {route[1]}") for route in operations(TABLES)]


@pytest.mark.parametrize(("method", "path", "handler"), ROUTES)
def test_every_route_says_what_it_is(method, path, handler):
    assert description_of(handler) is not None, f"put @Described(...) under {method} {path}: agentd/http/description.py"


def test_the_page_is_current():
    assert PATH.read_text() == api_page(), "the API changed: run `python -m scripts.docs_api`"


def test_a_route_that_says_nothing_is_there_all_the_same():
    table = web.RouteTableDef()

    @table.get("/api/v1/things/{thing}/{way:up|down}")
    async def things(request: web.Request) -> web.Response:
        """What is moved. Slowly."""
        return web.Response()

    paths = openapi([table], "0")["paths"]
    assert set(paths) == {"/api/v1/things/{thing}/up", "/api/v1/things/{thing}/down"}
    operation = paths["/api/v1/things/{thing}/up"]["get"]
    assert operation["summary"] == "What is moved"
    assert [parameter["name"] for parameter in operation["parameters"]] == ["thing"]
    assert {"200", "400", "401", "403", "404", "500", "503"} <= set(operation["responses"])


def test_names_are_unique_and_every_reference_leads_somewhere():
    description = api_description()
    operations = [found for methods in description["paths"].values() for found in methods.values()]
    names = [found["operationId"] for found in operations]
    assert len(names) == len(set(names))
    text = json.dumps(description)
    for kind in ("schemas", "responses"):
        for name in description["components"][kind]:
            assert f'"#/components/{kind}/{name}"' in text
    for reference in {part.partition('"')[0] for part in text.split('"$ref": "')[1:]}:
        found = description
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]


def test_the_document_of_the_description_is_the_one_that_is_read():
    validator = jsonschema_rs.validator_for(DOCUMENT)
    for example in DOCUMENT["examples"]:
        assert validator.is_valid(example)
        assert check_task_group(example).document is not None
    for wrong in ({}, {"name": "x"}, DOCUMENT["examples"][0] | {"surprise": 1}, DOCUMENT["examples"][0] | {"name": ""}):
        assert not validator.is_valid(wrong)
        assert check_task_group(wrong).document is None


def test_what_a_parent_stands_for_may_be_left_out():
    whole = jsonschema_rs.validator_for(DOCUMENT)
    training = {"parent_checkpoint": "tg-01kb89t3f89j6ct3adhq@5", "checkpoint_path": "/data/x"}
    child = {"name": "x", "task_type": "training", "training": training}
    assert whole.is_valid(child) and whole.is_valid({**child, "task": {"env": {"A": "1"}}})
    for name, value in training.items():
        assert not whole.is_valid({**child, "training": {**training, name: 7}})
        assert not whole.is_valid({**child, "training": {name: value}})
    assert not whole.is_valid({"name": "x", "task_type": "container", "task": {"command": "x"}})


def test_it_is_printed_without_an_agent(capsys):
    assert main(["openapi"]) == 0
    assert json.loads(capsys.readouterr().out) == api_description()
