import pytest

from sottovoce.config import preset_names, resolve
from sottovoce.errors import ConfigError


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_resolves(name):
    resolved = resolve(name)
    assert resolved.config.about
    assert all(source == "default" or source.startswith("preset ") for _, _, source in resolved.rows())


def test_every_value_says_where_it_came_from():
    resolved = resolve("commonvoice-fr", ["batching.seconds=60", "seed=7"])
    rows = {key: (value, source) for key, value, source in resolved.rows()}
    assert rows["corpus.language"] == ("fr", "preset commonvoice-fr")
    assert rows["corpus.split"] == ("train", "preset commonvoice-en")
    assert rows["batching.seconds"] == (60.0, "--set batching.seconds")
    assert rows["seed"] == (7, "--set seed")
    assert rows["batching.max_padding"][1] == "default"


def test_later_settings_win_and_values_are_yaml():
    config = resolve(
        "quick", ["seed=1", "seed=2", "corpus.languages=[en, fr]", "batching.max_seconds_per_user=null"]
    ).config
    assert config.seed == 2
    assert config.corpus.languages == ("en", "fr")
    assert config.batching.max_seconds_per_user is None


def test_another_kind_of_corpus_replaces_the_whole_section(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: quick\ncorpus: {kind: table, file: index.tsv}\n")
    resolved = resolve(str(tmp_path / "mine.yaml"))
    assert resolved.config.corpus.kind == "table"
    assert resolved.config.batching.seconds == resolve("quick").config.batching.seconds


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["batching.secnds=60"], r"There is no key 'batching.secnds'. Did you mean 'batching.seconds'\?"),
        (["sead=1"], r"There is no key 'sead'. Did you mean 'seed'\?"),
        (["corpus.speekers=5"], r"There is no key 'corpus.speekers'. Did you mean 'corpus.speakers'\?"),
        (["batching.seconds=-1"], r"batching.seconds=-1 \(from --set batching.seconds\) is not valid"),
        (["batching.seconds=many"], "batching.seconds='many'"),
        (["corpus.kind=radio"], "corpus"),
        (["seed"], "Expected --set key=value"),
        (["seed={"], "is not YAML"),
        (["batching=5"], "batching=5"),
        (["corpus=5"], "corpus"),
        (["seed.x=5"], "seed"),
    ],
)
def test_a_wrong_setting_is_one_line(settings, message):
    with pytest.raises(ConfigError, match=message) as error:
        resolve("quick", settings)
    assert "\n" not in str(error.value)


def test_a_wrong_preset_suggests_the_nearest():
    with pytest.raises(ConfigError, match=r"There is no preset 'libripeech'\. Did you mean 'librispeech'"):
        resolve("libripeech")


@pytest.mark.parametrize(
    ("text", "message"),
    [("[1]", "keys and values"), ("a: [", "is not YAML"), ("corpus: {kind: table}", "corpus.file is required")],
)
def test_a_wrong_preset_file_is_one_line(tmp_path, text, message):
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as error:
        resolve(str(path))
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="There is no preset file"):
        resolve(str(tmp_path / "absent.yaml"))


def test_presets_that_extend_each_other_are_refused(tmp_path):
    (tmp_path / "a.yaml").write_text(f"extends: {tmp_path}/b.yaml\n")
    (tmp_path / "b.yaml").write_text(f"extends: {tmp_path}/a.yaml\n")
    with pytest.raises(ConfigError, match="in a circle"):
        resolve(str(tmp_path / "a.yaml"))
