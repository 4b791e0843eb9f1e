import subprocess
import sys
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sottovoce.errors import ConfigError
from sottovoce.open_union import OpenUnion


class Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str


class Circle(Shape):
    kind: Literal["circle"] = "circle"
    radius: float = Field(1.0, gt=0)


class Rectangle(Shape):
    kind: Literal["rectangle"] = "rectangle"
    sides: tuple[float, float] = (1.0, 2.0)


AnyShape = Annotated[Shape, OpenUnion(Shape, "kind", "circle")]
NAMED = OpenUnion(Shape, "kind")


class Drawing(BaseModel):
    shape: AnyShape = Field(default_factory=Circle)
    more: tuple[AnyShape, ...] = ()
    perhaps: AnyShape | None = None


def errors_of(**values):
    with pytest.raises(ValidationError) as error:
        Drawing(**values)
    return [(found["loc"], found["msg"]) for found in error.value.errors()]


def test_the_key_decides_the_kind():
    drawing = Drawing(shape={"kind": "rectangle", "sides": [3, 4]}, more=({"kind": "circle"},))
    assert drawing.shape == Rectangle(sides=(3.0, 4.0))
    assert drawing.more == (Circle(),)


def test_without_the_key_the_default_is_meant():
    assert Drawing(shape={"radius": 2}).shape == Circle(radius=2)


def test_an_instance_is_accepted_as_it_is():
    circle = Circle(radius=3)
    assert Drawing(shape=circle).shape is circle


def test_none_stays_none_where_it_is_allowed():
    assert Drawing().perhaps is None
    assert Drawing(perhaps={"kind": "rectangle"}).perhaps == Rectangle()


def test_a_value_is_dumped_by_its_own_class_and_read_again():
    drawing = Drawing(shape=Rectangle(), more=(Circle(), Rectangle()), perhaps=Circle())
    assert drawing.model_dump()["shape"] == {"kind": "rectangle", "sides": (1.0, 2.0)}
    dumped = drawing.model_dump(mode="json")
    assert dumped["more"] == [{"kind": "circle", "radius": 1.0}, {"kind": "rectangle", "sides": [1.0, 2.0]}]
    assert Drawing.model_validate(dumped) == drawing
    assert Drawing.model_validate_json(drawing.model_dump_json()) == drawing


def test_a_kind_that_is_defined_later_belongs_to_the_union():
    assert errors_of(shape={"kind": "star", "points": 5})

    class Star(Shape):
        kind: Literal["star"] = "star"
        points: int

    assert Drawing(shape={"kind": "star", "points": 5}).shape == Star(points=5)
    assert Drawing(shape=Star(points=3)).model_dump()["shape"] == {"kind": "star", "points": 3}
    assert NAMED.member({"kind": "star"}) is Star


def test_a_class_that_is_defined_again_replaces_the_earlier_one():
    def define():
        class Star(Shape):
            kind: Literal["zigzag"] = "zigzag"

        return Star

    first, second = define(), define()
    assert first is not second
    assert NAMED.members()["zigzag"] is second


def test_two_kinds_of_one_name_are_refused():
    class Base(BaseModel):
        name: str

    class One(Base):
        name: Literal["same"] = "same"

    class Other(Base):
        name: Literal["same"] = "same"

    class Distinct(Base):
        name: Literal["distinct"] = "distinct"

    union = OpenUnion(Base, "name")
    for given in ({"name": "same"}, One(), Other()):
        with pytest.raises(ConfigError, match=r"One and .*Other both have name='same'\. Rename one\."):
            union.validated(given)
    assert union.validated({"name": "distinct"}) == Distinct()
    assert union.members() == {"distinct": Distinct}


def test_a_script_and_the_same_file_as_a_module_define_one_kind(tmp_path):
    (tmp_path / "squares.py").write_text(
        "from typing import Literal\n"
        "from pydantic import BaseModel\n"
        "import shapes\n"
        "class Square(shapes.Shape):\n"
        "    kind: Literal['square'] = 'square'\n"
        "if __name__ == '__main__':\n"
        "    import squares\n"
        "    assert squares.Square is not Square\n"
        "    mine, theirs = Square(), squares.Square()\n"
        "    assert shapes.UNION.validated(mine) is mine\n"
        "    assert shapes.UNION.validated(theirs) is theirs\n"
        "    print(type(shapes.UNION.validated({'kind': 'square'})).__name__)\n"
    )
    (tmp_path / "shapes.py").write_text(
        "from pydantic import BaseModel\n"
        "from sottovoce.open_union import OpenUnion\n"
        "class Shape(BaseModel):\n"
        "    kind: str\n"
        "UNION = OpenUnion(Shape, 'kind')\n"
    )
    ran = subprocess.run([sys.executable, tmp_path / "squares.py"], capture_output=True, text=True, check=True)
    assert ran.stdout == "Square\n"


def test_a_subclass_without_a_name_of_its_own_is_refused():
    class Fancy(Circle):
        colour: str = "red"

    assert NAMED.members()["circle"] is Circle
    assert errors_of(shape=Fancy())[0][1] == "Fancy needs a kind of its own, such as kind: Literal['mine']"


def test_errors_name_the_precise_key():
    assert errors_of(shape={"radius": 0}) == [(("shape", "radius"), "Input should be greater than 0")]
    assert errors_of(shape={"nonsense": 1}) == [(("shape", "nonsense"), "Extra inputs are not permitted")]
    assert errors_of(more=({}, {"kind": "rectangle", "sides": [1, "x"]}))[0][0] == ("more", 1, "sides", 1)


def test_an_unknown_kind_lists_those_that_exist():
    ((place, message),) = errors_of(shape={"kind": "line"})
    assert place == ("shape", "kind")
    assert message.startswith("Expected circle")
    assert message.endswith("; for a kind of your own, import the module that defines it (sotto --import MODULE ...)")
    assert " or " in message


@pytest.mark.parametrize("value", [5, None, "circle", [1]])
def test_other_values_are_refused(value):
    ((place, message),) = errors_of(shape=value)
    assert place == ("shape",)
    assert message.startswith("Expected a mapping with kind: circle")


def test_without_a_default_the_key_is_required():
    with pytest.raises(ValidationError, match="Expected kind: circle"):
        NAMED.validated({"radius": 1})
    with pytest.raises(ValidationError, match="kind"):
        NAMED.validated({"kind": 3})
