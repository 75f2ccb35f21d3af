"""The plan of one op: data only, every decision with its reason.

An op runs as *steps*, one after another. A step computes some stored values (outputs, or temporaries in scratch memory). It
lists *variants*: ways to run it, each with a condition, a config and launches. The first variant whose condition holds is taken,
and the last one is always right. Conditions, configs, grids and scratch shapes are size expressions in the language
(`Rule`): `emit` prints them as Python, and `explain` and the tests evaluate them without `eval`.

A plan holds no Triton text. The template of a skeleton says what it does with a kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Generic, TypeVar

from tritongen.ir import nodes as ir
from tritongen.ir.algebra import Poly, poly
from tritongen.ir.free import tensors_read
from tritongen.kernel.nodes import Kernel, Walk
from tritongen.schedule.rules import conjunction

Rule = str  # a size expression, parsed by schedule.rules
Part = TypeVar("Part")
Dims = dict[str, tuple[Poly, ...]]  # of tensors, by name


@dataclass(frozen=True, slots=True)
class Axis:
    """Indices that one tile dim covers together, the outermost first: `row` = (n, g), `col` = (c, h, w).

    If other indices stand between its digits in memory, a tile covers the last `tail` of them, which are one run. The digits before,
    `outer`, are numbers of the program or of a step of its loop.
    """

    name: str
    digits: ir.Binders
    tail: int = 0  # 0: all

    @property
    def run(self) -> Axis:
        """The part of an axis that a tile covers."""
        return Axis(self.name, self.digits[-self.tail :]) if self.tail else self

    @property
    def outer(self) -> Axis:
        """The part of an axis that a tile does not cover."""
        return Axis(f"{self.name}_outer", self.digits[: -self.tail] if self.tail else ())

    @property
    def names(self) -> tuple[str, ...]:
        """Its indices."""
        return tuple(d.index for d in self.digits)

    @property
    def extent(self) -> Poly:
        return self.extent_of(self.names)

    def extent_of(self, names: tuple[str, ...]) -> Poly:
        return prod((d.hi - d.lo for d in self.digits if d.index in names), start=poly(1))


def walked_axes(walks: Iterable[Walk]) -> tuple[Axis, ...]:
    """The axes of a kernel that is lowered from walks: each index alone."""
    return tuple(Axis(w.index, (ir.Binder(w.index, Poly(), w.extent),)) for w in walks)


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as one kernel sees it: reshaped to `shape`, where the digits `runs[k]` index dim k.

    `order`: the order of its dims before that, if it differs from their own. `in_rows`: the launch copies an operand if
    its rows are long and not contiguous (`lib.in_rows`).
    """

    tensor: str
    shape: tuple[Poly, ...]
    runs: tuple[tuple[str, ...], ...]
    order: tuple[int, ...] = ()
    in_rows: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """Two folds that one pass computes together, although the second depends on the first (`paired.py`)."""

    kind: str
    first: str
    second: str
    shift: ir.Expr | None  # the value that the second fold subtracts, if it may be any row value
    stored: str = ""  # the dtype of the stores that the second fold's terms reach


@dataclass(frozen=True, slots=True)
class Level:
    """One pass over the reduced axis: the folds that depend only on results of earlier levels.

    The second fold of a pair is in the level of the first.
    """

    folds: tuple[str, ...]
    lines: tuple[str, ...]  # row values that follow from them
    pairs: tuple[Pair, ...] = ()
    stores: tuple[str, ...] = ()  # values over the whole tile that are stored as it walks

    @property
    def paired(self) -> set[str]:
        """The folds that are one of a pair."""
        return {name for pair in self.pairs for name in (pair.first, pair.second)}


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """One kernel: its skeleton, the axes of its tile, what it computes and what it stores.

    `nests` holds, in order, every value that the kernel computes. `views` says how it sees the tensors that it touches; a tensor without a
    view is addressed dim by dim. `levels` is for kernels that loop.
    """

    name: str
    skeleton: str  # templates/<skeleton>.py.j2
    axes: tuple[Axis, ...]
    nests: ir.Nests
    stores: tuple[str, ...]
    views: tuple[View, ...] = ()
    levels: tuple[Level, ...] = ()
    tiles: tuple[View, ...] = ()  # by tensor descriptor: each factor's operand, in order
    stored: tuple[View, ...] = ()  # outputs whose tiles leave by descriptor
    products: int = 1  # how many of the nests, the first ones, are sums of products
    reverse: bool = False  # a scan walks its axis from the end
    any_format: bool = False  # its views hold for outputs stored channels last, too
    slides: bool = False  # an operand slides under the tile as the loop goes on
    fetches: bool = False  # its walks load blocks ahead of their turn, STAGES in flight
    counter: str = ""  # scratch in which the programs of a two-pass kernel count
    either: bool = False  # LHS says which factor is split ahead: else it is the right one
    named: bool = False  # rows name their segments; else a tile looks up which have rows of it
    # axes along which neighbours in a factor share elements, and each is loaded once (`classes/packed.py`)
    packed: tuple[str, ...] = ()
    exchanged: bool = False  # the rows of its tiles are columns of the result
    within: tuple[tuple[str, int], ...] = ()  # axes, and the groups of which a tile has one
    splits: bool = False  # several programs may share a sum, each with one CHUNK of its terms
    kernel: Kernel | None = None  # of one that was lowered: its statements
    boxes: tuple[str, ...] = ()  # and operands that it loads by descriptor, where their reads say
    lanes: bool = False  # lanes may multiply few rows or columns, without tensor cores
    # numbers of one program, from its batch digits alone
    lets: tuple[tuple[str, Poly], ...] = ()
    # (coordinate, extent), where the axes have more points than the op
    ragged: tuple[tuple[Poly, Poly], ...] = ()

    @property
    def times(self) -> Rule:
        """The batches of a product, as a rule begins with them."""
        return "batches * " if self.axes[0].digits else ""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel over a grid. It takes the variant's config. A config of its own adds to it or overrides it.

    For a kernel that `splits`: `part` says whether programs store parts of sums instead of outputs. `scratch` is where they store them, or
    where they load those of earlier launches. PARTS in its grid is 1 if the config has none.
    """

    kernel: str
    grid: tuple[Rule, ...]
    config: tuple[tuple[str, Rule], ...] = ()
    part: bool = False
    scratch: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated time of one variant, by a function of `lib.estimates`.

    `kind`: how factors come to the tensor cores. `asked`: its other arguments, in front of those that all variants of a step share
    (`estimates.shared`).
    """

    model: str
    kind: str
    asked: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a step. `config` are (name, rule) pairs; upper-case names are constexprs.

    `requires`: what its kernels need to be right, of the call and of the device. Where it holds, the tests may force the variant
    (`proof/variants.py`). `when` implies it, and says when the variant is chosen. Of the variants that have an `estimate` and hold, the one
    with the least estimate is taken. If none holds, the first of the others is taken. Others that stand before them come first.
    """

    name: str
    when: Rule
    why: str
    config: tuple[tuple[str, Rule], ...]
    launches: tuple[Launch, ...]
    scratch: tuple[tuple[str, str, tuple[Rule, ...]], ...] = ()  # name, dtype, shape
    zeroed: tuple[tuple[str, str], ...] = ()  # the tensor that is added to, by name
    sums: tuple[tuple[str, str], ...] = ()  # scratch with parts, and the result that is their sum
    parts: tuple[tuple[str, str], ...] = ()  # scratch of which a kernel makes one result, and that
    packs: tuple[Pack, ...] = ()
    requires: Rule = "True"
    estimate: Estimate | None = None


def under(condition: Rule, v: Variant) -> Variant:
    """The variant, required to be in calls for which the condition holds, too."""
    when, requires = (conjunction(condition, rule) for rule in (v.when, v.requires))
    return replace(v, when=when, requires=requires)


@dataclass(frozen=True, slots=True)
class Pack:
    """An operand that a variant needs with another dim innermost. `tritongen.lib` copies it if it is stored otherwise.

    `order` are the operand's dims as the copy stores them, the innermost last.
    """

    tensor: str
    order: tuple[int, ...]
    # The operand whose dtype it gets, or a dtype such as `torch.float16`. Any dim may be innermost.
    like: str = ""
    # The name of the copy, where the kernel reads it as another tensor, of so many elements in the innermost dim, zeros
    # behind those of the operand: the operand itself, where these are as many and it lies so.
    stored: str = ""
    lanes: Poly = Poly()
    multiple: int = 1  # the innermost dim of the copy is padded with zeros to this multiple
    widens: str = ""  # that size then, where a kernel reads the copy as the operand
    # A dim of the operand and what it is split into, where `order` has two for it: groups and their channels.
    split: tuple[int, tuple[Poly, Poly]] | None = None


def pack_dims(pack: Pack, dims: tuple[Poly, ...]) -> tuple[Poly, ...]:
    """The dims of its operand, if these are all of them."""
    if pack.split is None:
        return dims
    at, parts = pack.split
    return (*dims[:at], *parts, *dims[at + 1 :])


def stored_dims(pack: Pack, dims: tuple[Poly, ...]) -> tuple[Poly, ...]:
    """The dims of a copy that is another tensor."""
    return (*(pack_dims(pack, dims)[k] for k in pack.order[:-1]), pack.lanes)


@dataclass(frozen=True, slots=True)
class Order:
    """A fact of the call: whether a tensor's stride in dim `near` is smaller than in dim `far`."""

    fact: str
    tensor: str
    near: int
    far: int


@dataclass(frozen=True, slots=True)
class Run:
    """A fact of the call: whether each tensor, its dims in this order, is one run of memory."""

    fact: str
    orders: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """A fact of the call: whether these have these values, and tiles of the tensors can be loaded by descriptor."""

    fact: str
    values: tuple[tuple[Poly, int], ...]
    tiles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reuse:
    """An earlier step of the module, whose kernels compute this one (`emit/reused.py`).

    `given`: for each tensor that the launch of that step takes, the tensor of this step in its place, and the order of its dims.
    Nothing where both launches take the same.
    """

    step: str
    kernels: tuple[str, ...]
    given: tuple[tuple[str, str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Step:
    """Values that are computed together. `facts` are the integers that the rules use, as sizes."""

    name: str
    skeleton: str
    why: str
    stores: tuple[str, ...]
    facts: tuple[tuple[str, Poly], ...]
    kernels: tuple[KernelPlan, ...]
    variants: tuple[Variant, ...]
    # Tensors, and the dims of the result that each has, none where it is all batch dims: the launch broadcasts them
    # to the result, and merges their dims to three.
    merged: tuple[tuple[str, tuple[int, ...]], ...] = ()
    apart: tuple[tuple[str, str], ...] = ()  # (an earlier step, why this is not part of it)
    orders: tuple[Order, ...] = ()
    tests: tuple[Run | Sizes, ...] = ()
    # How its products of f32 are computed: the spec's word, or torch's switch, "conv" or "matmul"
    precision: str = ""
    no_product: str = ""  # why sums of several factors are no products of tiles
    optional: tuple[str, ...] = ()  # what its kernels leave out of a call that does not ask for it
    defines: tuple[ir.Define, ...] = ()  # sizes that only some of its kernels range over
    reuses: Reuse | None = None
    reused: bool = False  # whether a later step of the module reuses it

    def beside(self, other: Step) -> Step:
        """The step with the kernels of another one, whose variants are asked first."""
        return replace(
            self,
            facts=tuple((dict(self.facts) | dict(other.facts)).items()),
            kernels=(*self.kernels, *other.kernels),
            variants=(*other.variants, *self.variants),
            orders=(*self.orders, *other.orders),
            tests=(*self.tests, *other.tests),
            defines=(*self.defines, *other.defines),
        )

    def kernel(self, name: str) -> KernelPlan:
        return next(k for k in self.kernels if k.name == name)

    def seen_by(self, kernel: str, tensor: str) -> View | None:
        return next((v for v in self.kernel(kernel).views if v.tensor == tensor), None)

    def is_shared(self, tensor: str) -> bool:
        """Whether all kernels see a tensor in the same way, and none needs it packed. Then its view is printed once."""
        ways = {self.seen_by(k.name, tensor) for k in self.kernels}
        return len(ways) == 1 and all(p.tensor != tensor for p in self.packs)

    @cached_property
    def touched(self) -> tuple[str, ...]:
        """The tensors that its kernels take, operands first. Only the launch knows tensors of copies.

        Tensors that one kernel stores for the next are not included.
        """
        copies = {p.stored: p.tensor for v in self.variants for p in v.packs if p.stored}
        names: dict[str, None] = {}
        nests = {id(n): n for k in self.kernels for n in k.nests}.values()  # kernels share theirs
        computed = {n.name for n in nests}
        computed |= {name for v in self.variants for name, _, _ in v.scratch}
        for nest in nests:
            for tensor in sorted(tensors_read(nest.body)):
                if tensor not in computed:
                    names[copies.get(tensor, tensor)] = None
        return (*names, *self.stores)

    @property
    def packs(self) -> tuple[Pack, ...]:
        """The packs of all variants, each once."""
        return tuple({p.tensor: p for v in self.variants for p in v.packs}.values())


@dataclass(frozen=True, slots=True)
class Chunks(Generic[Part]):
    """What runs for a chunk of one size after another, and what runs behind them (`chunks.py`): two ops, or their plans.

    `parts`: the tensors of which a chunk is given a part, the dims with the size, and what the parts are called. `first`,
    `whole`: the scalars of the body that say where a chunk begins and what the size is. `count`: how many indices it has.
    `sums`: what the chunks add up, 0 in front of the first one.
    """

    size: str
    parts: tuple[tuple[str, int, str], ...]
    first: str
    whole: str
    count: str
    sums: ir.Nests
    body: Part
    behind: Part

    @property
    def befores(self: Chunks[Plan]) -> tuple[str, ...]:
        """What the body calls the sums of the chunks before it, its last operands."""
        return tuple(t.name for t in self.body.inner.tensors[-len(self.sums) :])


@dataclass(frozen=True)
class Plan:
    """One typing of an op, as steps. `scratch` are the temporaries that pass between steps.

    `name` is that of the op, followed by the kind if there are several typings. `chunks`: where its steps are those of a
    part of the op, which runs several times.
    """

    name: str
    op: ir.Op
    inner: ir.Op  # the op with the names that kernels and launches know it by
    steps: tuple[Step, ...]
    scratch: ir.Nests
    nests: ir.Nests  # the canonical form that the steps were made from
    defines: tuple[ir.Define, ...] = ()  # sizes of the plan's own making, behind those of the op
    chunks: Chunks[Plan] | None = None

    @cached_property
    def leads(self) -> dict[str, frozenset[str]]:
        """The outputs that follow from each stored value, itself among them.

        The steps behind all chunks may compute a value again that the steps of a chunk compute, under the same name.
        """
        outputs = {o.name for o in self.inner.outputs}
        stored = (name for step in self.steps for name in step.stores)
        found = {name: frozenset({name} & outputs) for name in stored}
        for at, step in reversed([*enumerate(self.steps, 1)]):
            for name in step.stores:
                later = (s for s in self.steps[at:] if name in s.touched and name not in s.stores)
                found[name] = found[name].union(*(found[n] for s in later for n in s.stores))
        return found
