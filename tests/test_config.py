import pytest

from sottovoce.config import Layer, parse_setting, preset_names, resolve
from sottovoce.errors import ConfigError
from sottovoce.optim import Lamb, Sgd


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_resolves(name):
    resolved = resolve(name)
    assert resolved.config.about
    assert all(source == "default" or source.startswith("preset ") for _, _, source in resolved.rows())


def test_every_value_says_where_it_came_from():
    resolved = resolve("commonvoice-fr", *map(parse_setting, ["batching.seconds=60", "seed=7"]))
    rows = {key: (value, source) for key, value, source in resolved.rows()}
    assert rows["corpus.language"] == ("fr", "preset commonvoice-fr")
    assert rows["corpus.split"] == ("train", "preset commonvoice-en")
    assert rows["batching.seconds"] == (60.0, "--set batching.seconds")
    assert rows["seed"] == (7, "--set seed")
    assert rows["batching.max_padding"][1] == "default"


def test_later_settings_win_and_values_are_yaml():
    settings = ["seed=1", "seed=2", "corpus.languages=[en, fr]", "batching.max_seconds_per_user=null"]
    config = resolve("quick", *map(parse_setting, settings)).config
    assert config.seed == 2
    assert config.corpus.languages == ("en", "fr")
    assert config.batching.max_seconds_per_user is None


def test_another_kind_of_corpus_replaces_the_whole_section(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: quick\ncorpus: {kind: table, file: index.tsv}\n")
    resolved = resolve(str(tmp_path / "mine.yaml"))
    assert resolved.config.corpus.kind == "table"
    assert resolved.config.batching.seconds == resolve("quick").config.batching.seconds


def test_layers_are_trees_that_say_where_they_come_from():
    resolved = resolve("quick", {"seed": 3, "batching": {"seconds": 60}}, Layer({"seed": 4}, "a notebook"))
    rows = {key: (value, source) for key, value, source in resolved.rows()}
    assert rows["seed"] == (4, "a notebook")
    assert rows["batching.seconds"] == (60.0, "settings")


def test_objects_of_options_are_kept_as_they_are_until_a_value_in_them_changes():
    optimizer = Lamb(xi=0.01)
    resolved = resolve("quick", {"federated": {"optimizer": optimizer}})
    assert resolved.config.federated.optimizer is optimizer
    assert resolved.sources["federated.optimizer.xi"] == "settings"
    changed = resolve(
        "quick", {"federated": {"optimizer": optimizer}}, parse_setting("federated.optimizer.trust=false")
    )
    assert changed.config.federated.optimizer == Lamb(xi=0.01, trust=False)
    assert changed.sources["federated.optimizer.xi"] == "settings"
    assert changed.sources["federated.optimizer.trust"] == "--set federated.optimizer.trust"


def test_another_optimizer_replaces_the_options_of_the_one_before():
    momentum = {"federated": {"optimizer": {"name": "sgd", "momentum": 0.5}}}
    assert resolve("quick", momentum).config.federated.optimizer == Sgd(momentum=0.5)
    assert (
        resolve("quick", momentum, parse_setting("federated.optimizer.name=lamb")).config.federated.optimizer == Lamb()
    )


def test_a_section_of_a_union_is_of_the_default_kind_unless_it_says_otherwise():
    assert resolve("baseline", {"federated": {"optimizer": {"xi": 0.01}}}).config.federated.optimizer == Lamb(xi=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["batching.secnds=60"], r"There is no key 'batching.secnds'. Did you mean 'batching.seconds'\?"),
        (["privcy.clip_norm=1"], r"There is no key 'privcy'. Did you mean 'privacy'\?"),
        (["sead=1"], r"There is no key 'sead'. Did you mean 'seed'\?"),
        (["corpus.speekers=5"], r"There is no key 'corpus.speekers'. Did you mean 'corpus.speakers'\?"),
        (["batching.seconds=-1"], r"batching.seconds=-1 \(from --set batching.seconds\) is not valid"),
        (["batching.seconds=many"], "batching.seconds='many'"),
        (["corpus.kind=radio"], "corpus"),
        (
            ["federated.optimizer.xi=-1"],
            r"^federated.optimizer.xi=-1 \(from --set federated.optimizer.xi\) is not valid",
        ),
        (
            ["federated.optimizer.xee=1"],
            r"There is no key 'federated.optimizer.xee'. Did you mean 'federated.optimizer.xi'",
        ),
        (["seed"], "Expected --set key=value"),
        (["seed={"], "is not YAML"),
        (["batching=5"], "batching=5"),
        (["corpus=5"], "corpus"),
        (["seed.x=5"], "seed"),
    ],
)
def test_a_wrong_setting_is_one_line(settings, message):
    with pytest.raises(ConfigError, match=message) as error:
        resolve("quick", *map(parse_setting, settings))
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
