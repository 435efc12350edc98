"""Where a setting comes from, what is refused, and that flags, variables and fields are the same set."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import oxibonsai
from oxibonsai.errors import RequestError
from oxibonsai.sampling import PRESETS
from oxibonsai.server.rate_limit import Rate
from oxibonsai.server.setting_options import given, setting_options
from oxibonsai.server.setting_sources import flag, load_settings, variable
from oxibonsai.server.settings import Settings


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests heed OXIBONSAI_THREADS, which is a setting here."""
    for field in Settings.model_fields:
        monkeypatch.delenv(variable(field), raising=False)


def parse(*arguments: str) -> Settings:
    """The settings that a command line gives."""
    found: list[Settings] = []

    @click.command()
    @setting_options
    def command(**options: object) -> None:
        found.append(load_settings(given(options)))

    CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)
    return found[0]


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "server.toml"
    config.write_text("port = 1000\nparallel = 2\nseed = 3\n")
    monkeypatch.setenv("OXIBONSAI_PORT", "2000")
    monkeypatch.setenv("OXIBONSAI_PARALLEL", "5")
    settings = load_settings({"port": "3000"}, config)
    assert (settings.port, settings.parallel, settings.seed) == (3000, 5, 3)
    assert settings.ctx_size is None


def test_a_preset_decides_what_nothing_else_does(tmp_path: Path) -> None:
    code = PRESETS["code"]
    found = parse("--preset", "code", "--top-k", "5")
    assert (found.temperature, found.top_k, found.top_p) == (code.temperature, 5, code.top_p)
    config = tmp_path / "server.toml"
    config.write_text('preset = "code"\ntemperature = 0.9\n')
    found = load_settings({"top_p": "0.7"}, config)
    assert (found.temperature, found.top_k, found.top_p) == (0.9, code.top_k, 0.7)
    with pytest.raises(RequestError, match=r"--preset is 'cod': .* must be one of greedy"):
        parse("--preset", "cod")


def test_replicas_come_from_the_environment_and_the_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "server.toml"
    config.write_text("replicas = 3\n")
    assert load_settings({}, config).replicas == 3
    assert load_settings({"parallel": 8, "replicas": 2}).threads_for_http == 208
    monkeypatch.setenv("OXIBONSAI_REPLICAS", "2")
    assert load_settings({}, config).replicas == 2


def test_the_file_can_be_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "server.toml"
    config.write_text('api-key = ["a", "b"]\nmetrics = true\n')
    monkeypatch.setenv("OXIBONSAI_CONFIG", str(config))
    settings = load_settings({})
    assert settings.api_key == ("a", "b")
    assert settings.metrics


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["-c", "512"], "ctx_size", 512),
        (["--ctx-size", "512"], "ctx_size", 512),
        (["-np", "3"], "parallel", 3),
        (["--replicas", "2"], "replicas", 2),
        (["-n", "64"], "n_predict", 64),
        (["--predict", "64"], "n_predict", 64),
        (["-a", "x", "--alias", "y,z"], "alias", ("x", "y", "z")),
        (["-m", "model.gguf"], "model", "model.gguf"),
        (["-t", "2"], "threads", 2),
        (["-b", "32"], "batch_size", 32),
        (["-s", "7"], "seed", 7),
        (["--temp", "0.5"], "temperature", 0.5),
        (["--api-key", "a", "--api-key", "b"], "api_key", ("a", "b")),
        (["--metrics"], "metrics", True),
        (["--no-slots"], "slots", False),
        (["--slots"], "slots", True),
        (["--no-ui"], "ui", False),
        (["--no-webui"], "ui", False),
        (["--no-jinja"], "jinja", False),
        (["--embeddings"], "embedding", True),
        (["--pooling", "mean"], "pooling", "mean"),
        (["--reasoning-format", "none"], "reasoning_format", "none"),
        (["--chat-template-file", "t.jinja"], "chat_template_file", Path("t.jinja")),
        (["--slot-save-path", "d"], "slot_save_path", Path("d")),
        (["-cram", "-1"], "cache_ram", -1),
        (["--cache-ram", "64"], "cache_ram", 64),
        (["-cms", "0"], "checkpoint_min_step", 0),
        (["-ctxcp", "5"], "ctx_checkpoints", 5),
        (["--verbose"], "verbose", True),
        (["-v"], "verbose", True),
        (["--host", "127.0.0.1", "--host", "::1"], "host", ("127.0.0.1", "::1")),
    ],
)
def test_the_names_of_llama_server_work(arguments: list[str], field: str, value: object) -> None:
    assert getattr(parse(*arguments), field) == value


@pytest.mark.parametrize("word", ["1", "on", "true", "TRUE", "yes", "enabled"])
def test_a_switch_knows_words_for_on(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OXIBONSAI_METRICS", word)
    assert load_settings({}).metrics is True


@pytest.mark.parametrize("word", ["0", "off", "false", "no", "disabled", ""])
def test_a_switch_knows_words_for_off(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OXIBONSAI_SLOTS", word)
    assert load_settings({}).slots is False


def test_a_variable_holds_a_list_as_words_between_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OXIBONSAI_HOST", "127.0.0.1, ::1")
    monkeypatch.setenv("OXIBONSAI_API_KEY_FILE", "a,b")
    settings = load_settings({})
    assert settings.host == ("127.0.0.1", "::1")
    assert settings.api_key_file == (Path("a"), Path("b"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("port", "65536"),
        ("port", "http"),
        ("threads", "0"),
        ("temperature", "nan"),
        ("temperature", "inf"),
        ("metrics", "maybe"),
        ("kv_type", "f8"),
        ("rate_limit", "0"),
        ("rate_limit", "-1"),
        ("max_body_mb", "1e309"),
        ("seed", str(2**64)),
    ],
)
def test_a_value_out_of_range_is_refused_by_the_name_it_came_under(
    field: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RequestError, match=f"^{flag(field)} is '{value}': "):
        load_settings({field: value})
    config = tmp_path / "server.toml"
    config.write_text(f"{flag(field)[2:]} = '{value}'\n")
    with pytest.raises(RequestError, match=f"^{field} in {config} is '{value}': "):
        load_settings({}, config)
    monkeypatch.setenv(variable(field), value)
    with pytest.raises(RequestError, match=f"^{variable(field)} is '{value}': "):
        load_settings({}, config)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", "sets 'prot', which is not a setting; did you mean port"),
        ("port = ", "is not TOML"),
        (f"port = 1{'0' * 5000}", "is not TOML"),
        (f"port = {'[' * 5000}{']' * 5000}", "is nested too deeply: settings are flat"),
        ("[server]\nport = 1", "sets 'server', which is not a setting"),
        ("ctx-size = 1\nctx_size = 2", "sets ctx_size twice"),
        ("port = true", "port in "),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    config = tmp_path / "server.toml"
    config.write_text(text)
    if words == "port in ":
        # pydantic takes true for 1, as Python does.
        assert load_settings({}, config).port == 1
        return
    with pytest.raises(RequestError, match=words):
        load_settings({}, config)


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(RequestError, match=r"cannot read the configuration none\.toml"):
        load_settings({}, "none.toml")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org", "[::]"])
def test_a_public_address_needs_a_key_or_a_word(host: str) -> None:
    with pytest.raises(RequestError, match="--allow-public to allow it deliberately"):
        load_settings({"host": host})
    with pytest.raises(RequestError, match="no API key"):
        load_settings({"host": ["127.0.0.1", host]})
    for more in ({"api_key": "k"}, {"api_key_file": "keys"}, {"allow_public": True}):
        assert load_settings({"host": host, **more}).host == (host,)


@pytest.mark.parametrize(
    ("value", "rate"),
    [
        (2.5, Rate(2.5)),
        ("2.5", Rate(2.5)),
        ("60/minute", Rate(1)),
        ("7200 / hour", Rate(2)),
        ("86400/day", Rate(1)),
        ({"capacity": 20, "rate": 10.0}, Rate(10, 20)),
        ({"capacity": 20, "rate": "120/minute"}, Rate(2, 20)),
    ],
)
def test_a_rate_is_a_number_a_text_or_a_table(value: object, rate: Rate) -> None:
    assert load_settings({"rate_limit": value}).rate_limit == rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("2", Rate(2)),
        ("60/minute", Rate(1)),
        ('{"capacity": 20, "rate": "1/hour"}', Rate(1 / 3600, 20)),
    ],
)
def test_a_rate_is_the_same_as_a_flag_and_as_a_variable(
    text: str, rate: Rate, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parse("--anonymous-rate-limit", text).anonymous_rate_limit == rate
    monkeypatch.setenv("OXIBONSAI_ANONYMOUS_RATE_LIMIT", text)
    assert load_settings({}).anonymous_rate_limit == rate


@pytest.mark.parametrize(
    "value",
    [
        "60/fortnight", "x/minute", "0/minute", "1e999/minute", "nan", {"rate": 1},
        {"capacity": 0, "rate": 1}, {"capacity": 1, "rate": 1, "burst": 2}, True, [1],
    ],
)  # fmt: skip
def test_what_is_no_rate_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match=r"^--rate-limit is "):
        load_settings({"rate_limit": value})
    with pytest.raises(RequestError, match=r"^--per-key-rate-limits: ") as error:
        load_settings({"per_key_rate_limits": {"secret": value}})
    assert "secret" not in str(error.value)


def test_rates_of_keys_come_from_toml_json_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml, as_json = tmp_path / "server.toml", tmp_path / "server.json"
    toml.write_text(
        'per_key_rate_limits = {"sk-a" = "600/minute", "sk-b" = {capacity = 20, rate = 10.0}}\n'
    )
    rates = '{"sk-a": "600/minute", "sk-b": {"capacity": 20, "rate": 10.0}}'
    as_json.write_text(f'{{"per-key-rate-limits": {rates}, "port": 1000}}')
    expected = {"sk-a": Rate(10), "sk-b": Rate(10, 20)}
    assert load_settings({}, toml).per_key_rate_limits == expected
    assert load_settings({}, as_json).per_key_rate_limits == expected
    assert load_settings({}, as_json).port == 1000
    monkeypatch.setenv("OXIBONSAI_PER_KEY_RATE_LIMITS", rates)
    assert load_settings({}).per_key_rate_limits == expected
    assert parse("--per-key-rate-limits", rates).per_key_rate_limits == expected
    for text, words in (
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ('{"port": 1, "port": 2}', "twice"),
    ):
        as_json.write_text(text)
        with pytest.raises(RequestError, match=words):
            load_settings({}, as_json)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_a_loopback_address_needs_no_key(host: str) -> None:
    assert load_settings({"host": host}).host == (host,)


def test_keys_are_neither_printed_nor_shown_in_errors() -> None:
    assert "secret" not in repr(load_settings({"api_key": "secret"}))
    with pytest.raises(RequestError) as error:
        load_settings({"api_key": {"secret": 1}})
    assert "secret" not in str(error.value)


def test_every_field_has_a_flag_and_a_description() -> None:
    @click.command()
    @setting_options
    def command() -> None:
        pass

    flags = {option for p in command.params for option in p.opts}
    for field in Settings.model_fields.values():
        assert field.description
    assert {flag(name) for name in Settings.model_fields} <= flags


def test_penalties_have_defaults_of_the_server(tiny_path: Path) -> None:
    from oxibonsai.server.sampling_fields import SamplingFields

    settings = parse("--repeat-penalty", "1.2", "--repeat-last-n", "9", "--presence-penalty", "0.5")
    engine = oxibonsai.load(tiny_path)

    def params(**fields: object) -> tuple[float, int, float, float]:
        p = SamplingFields(**fields).sampling_params(settings, engine, max_tokens=None)
        return (
            p.repetition_penalty,
            p.repetition_window,
            p.presence_penalty,
            p.frequency_penalty,
        )

    assert params() == (1.2, 9, 0.5, 0.0)
    assert params(repeat_penalty=1.0, frequency_penalty=0.25) == (1.0, 9, 0.5, 0.25)
    assert params(preset="greedy") == (1.0, 64, 0.0, 0.0)
