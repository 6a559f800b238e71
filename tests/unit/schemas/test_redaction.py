"""Names that sound secret, and values that are known to be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.rules.redaction import REDACTED, is_secret_name, redact, redact_text, redact_words, secret_values

SECRET = "hf-canary-4f0d1b"


@pytest.mark.parametrize(
    "name",
    (
        "password DB_PASSWORD HF_TOKEN wandb_api_key AWS_SECRET_ACCESS_KEY private-key Authorization registry.auth "
        "GITHUB_PAT client_secret SLACK_WEBHOOK SENTRY_DSN passphrase session_cookie"
    ).split(),
)
def test_names_of_secrets(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    (
        "lr max_tokens num_tokens tokenizer tokenizer_path n_tokens pad_token keyboard monkey path author pass_rate "
        "compass batch_size checkpoint_path primary_key_column"
    ).split(),
)
def test_names_that_only_look_like_it(name):
    assert not is_secret_name(name)


def test_what_stands_under_such_a_name_goes_and_the_rest_stays():
    shown = redact(
        {
            "task": {"env": {"A": "1", "HF_TOKEN": SECRET}, "image": "a:1", "command": f"train --x {SECRET}"},
            "credential": {"username": "ada", "password": SECRET},
            "list": [{"token": 7}, SECRET, None, True, 3],
            "mirror": f"https://ada:{SECRET}@registry.example/x",
            "header": "Authorization: Bearer abcdefghijkl",
        },
        [SECRET],
    )
    assert shown["task"]["env"] == {"A": REDACTED, "HF_TOKEN": REDACTED}
    assert (shown["task"]["image"], shown["task"]["command"]) == ("a:1", f"train --x {REDACTED}")
    assert shown["credential"]["password"] == REDACTED
    assert shown["list"] == [{"token": REDACTED}, REDACTED, None, True, 3]
    assert shown["mirror"] == f"https://ada:{REDACTED}@registry.example/x"
    assert "abcdefghijkl" not in shown["header"]


def test_words_of_a_command_line():
    words = ["t.py", "--api-key", SECRET, "--lr", "1", f"HF_TOKEN={SECRET}", f"--password={SECRET}", "--token"]
    assert redact_words(words) == [word.replace(SECRET, REDACTED) for word in words]


def test_values_of_a_document_are_known_by_their_names():
    document = {
        "task": {"env": {"HF_TOKEN": SECRET, "PIN_TOKEN": "1234", "A": "plain-text"}},
        "training": {"hyper_params": {"api_key": SECRET + "2"}},
    }
    assert secret_values(document) == [SECRET, SECRET + "2"]
    assert secret_values({}) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just(f"x{SECRET}y"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_a_known_value_is_nowhere_left_and_shapes_stay(value):
    shown = redact(value, [SECRET])
    values = json.dumps(list(shown.values()) if isinstance(shown, dict) else shown)
    assert SECRET not in values
    assert type(shown) is type(value)


@given(st.text(alphabet="ab:/@ .", max_size=60))
def test_text_without_secrets_keeps_its_ends(text):
    assert redact_text(text, []).count(" ") == text.count(" ")
