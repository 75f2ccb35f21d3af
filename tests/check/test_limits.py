"""What doubles with each line of a spec: refused in one located error at once, or built without doubling."""

from time import process_time

import pytest

from tritongen import pipeline, work
from tritongen.autodiff import NotDifferentiable, backward, gradient
from tritongen.check import check
from tritongen.emit.collisions import marks_for
from tritongen.errors import SpecError
from tritongen.ir import bounds
from tritongen.ir.known import facts_of
from tritongen.ir.print import print_op
from tritongen.syntax.parse import parse


def op(body: str, more: str = "") -> str:
    return f"op f<T: float>(x: T[N, D]) -> y: T[N, D] {more} {{ {body} }}"


def calls(body: str, depth: int) -> list[str]:
    """Ops that call the one before: `body` has it as F."""
    head = "op {}<T: float>(x: T[N]) -> y: T[N] {{ y = {} }}"
    return [head.format("g0_", "exp(x)")] + [
        head.format(f"g{k}_", body.replace("F", f"g{k - 1}_")) for k in range(1, depth)
    ]


def macros(body: str, depth: int) -> str:
    lines = [f"fn m{k}(x) = {body.replace('F', f'm{k - 1}')}" for k in range(1, depth)]
    return "\n".join(["fn m0(x) = x * x", *lines, op(f"y = m{depth - 1}(x)")])


def nested(name: str, depth: int) -> str:
    return f"{name}(" * depth + "x" + ")" * depth


def sizes(first: str, step: str, depth: int) -> str:
    facts = [f"P0 = {first}", *(step.format(p=f"P{k}", q=f"P{k + 1}") for k in range(depth))]
    return op(f"y = x * P{depth}", "with " + ", ".join(facts))


TOO_MUCH = {
    "a power": (op("y = x * 2 ** 100000"), "E011"),
    "a tower": (op("y = x * 9 ** 9 ** 9"), "E011"),
    "a large offset": (op(f"y[n, d] = x[n, d + {'9' * 18} * {'9' * 18}] else 0"), "E011"),
    "calls": ("\n".join(calls("F(x) + F(x)", 25)), "E009"),
    "calls of calls": ("\n".join(calls("F(F(x))", 25)), "E009"),
    "calls, the last first": ("\n".join(calls("F(x) + F(x)", 25)[::-1]), "E009"),
    "macros": (macros("F(x) + F(x)", 25), "E009"),
    "macros of macros": (macros("F(F(x))", 25), "E009"),
    "arguments": ("fn sq(x) = x * x\n" + op(f"y = {nested('sq', 25)}"), "E009"),
    "many macros": (macros("F(x) + F(x)", 7) [:-1] + "\n".join(f"t{k} = m6(x)" for k in range(60)) + "}", "E009"),
    "a product of sums": (op("y = x", "with P = " + " * ".join(["(N + D + 1)"] * 30)), "E009"),
    "squares of sizes": (sizes("N + D", "{q} = {p} * {p} + N", 12), "E009"),
    "digits of sizes": (sizes("N + D", "{q} = {p} // 2 + {p} % 3", 25), "E009"),
}  # fmt: skip


TOO_MUCH["typings"] = (
    "op f<A: float | int | bool, B: float | int | bool, C: float | int | bool, E: float | int>"
    "(a: A[N], b: B[N], c: C[N], e: E[N]) -> y: f32[N] { y = f32(a) + f32(b) + f32(c) + f32(e) }",
    "E009",
)


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_is_one_error_at_once(name):
    text, code = TOO_MUCH[name]
    start = process_time()
    with pytest.raises(SpecError) as raised:
        check(parse(text))
    assert process_time() - start < 3  # a fraction of a second, where nothing else runs
    (finding,) = raised.value.diagnostics
    assert finding.code == code and finding.span is not None


def shifted(depth: int) -> str:
    line = "t{k}[n < N, d < D] = (t{j}[n, d - 1] else 0) + (t{j}[n, d + 1] else 0)\n"
    lines = [line.format(k=k, j=k - 1) for k in range(1, depth)]
    return op("t0[n, d] = exp(x[n, d])\n" + "".join(lines) + f"y[n, d] = t{depth - 1}[n, d]")


def test_a_chain_of_shifts_is_stored_now_and_then():
    start = process_time()
    built = pipeline.build(shifted(25))
    assert process_time() - start < 10
    assert 2 < len(built.plans["f"][0].steps) < 12


@pytest.mark.parametrize(
    "text",
    [op(f"y = {nested('softmax', 6)}"), "fn sq(x) = x * x\n" + op(f"y = {nested('sq', 6)}")],
    ids=["softmaxes", "squares"],
)
def test_the_gradient_of_a_chain_grows_with_its_links(text):
    start = process_time()
    back = print_op(gradient(check(parse(text))[-1].typings[0]))
    pipeline.build(back)
    assert process_time() - start < 10
    assert len(back) < 3000


def test_the_gradient_of_a_long_product_names_its_factors():
    """Its text would be longer than a spec may be; as it was derived, it grows with the factors."""
    powers = " * ".join(f"(x + {k})" for k in range(100))
    start = process_time()
    back = gradient(check(parse(op(f"y = {powers}")))[0].typings[0])
    assert process_time() - start < 10
    assert len(back.nests) < 400


def test_a_gradient_that_grows_beyond_all_sharing_is_refused(monkeypatch):
    monkeypatch.setattr(backward, "PLAIN", 2)
    monkeypatch.setattr(backward, "MOST", 2)
    product = check(parse(op("y = (x + 1) * (x + 2) * (x + 3) * (x + 4)")))[0].typings[0]
    with pytest.raises(NotDifferentiable, match="its line `y` grows beyond 2 operations"):
        gradient(product)


def chain(call: str, links: int, operands: str = "") -> str:
    """Each line calls an op with the one before."""
    names = ["x", *(f"t{k}" for k in range(1, links)), "y"]
    lines = (f"{b} = {call.format(a)}" for a, b in zip(names, names[1:], strict=False))
    return op("\n".join(lines)).replace("x: T[N, D]", f"x: T[N, D]{operands}")


NORM = "layer_norm({}, w, b)", ", w: T[D], b: T[D]"


def steps(text: str, **more: bool) -> int:
    pipeline.build.__wrapped__(text, **more)
    return work.spent()


@pytest.mark.parametrize("link", [("softmax({})", ""), NORM], ids=["softmax", "layer_norm"])
def test_the_work_of_a_chain_does_not_double_with_its_links(link):
    call, operands = link
    few, many = (steps(chain(call, links, operands)) for links in (2, 6))
    assert many < 12 * few < work.MOST_STEPS


def test_nor_does_that_of_its_gradient_grow_beyond_its_square():
    """Twelve layer_norms took ten times the steps that a compile has; 6 after 2 took 14 times as many, or more."""
    few, many = (steps(chain(NORM[0], links, NORM[1]), gradients=True) for links in (2, 6))
    assert many < 9 * few


def test_what_a_compile_may_do_is_counted_and_ends_in_a_finding(monkeypatch):
    text = chain("softmax({})", 3)
    needed = steps(text)
    monkeypatch.setattr(work, "MOST_STEPS", needed)
    assert steps(text) == needed  # whatever ran before
    monkeypatch.setattr(work, "MOST_STEPS", needed - 1)
    with pytest.raises(SpecError) as raised:
        pipeline.build.__wrapped__(text)
    (finding,) = raised.value.diagnostics
    assert finding.code == "E009" and finding.span.source.text == text
    monkeypatch.setattr(work, "MOST_STEPS", 10)
    with pytest.raises(SpecError, match="E009"):
        check(parse(text))


def diagonal(terms: int) -> str:
    """Each read asks for a wider tensor."""
    reads = " + ".join(f"x[n, n + {k}]" for k in range(terms))
    return op(f"y[n] = {reads}").replace("y: T[N, D]", "y: T[N]")


def test_of_what_many_reads_ask_for_the_widest_is_kept():
    typed = check(parse(diagonal(40)))[0].typings[0]
    assert len(facts_of(typed).known) < 4 and len(typed.facts) == 40


def test_proofs_are_counted_and_grow_with_the_reads(monkeypatch):
    """Each proof tried what all reads asked for, and none was counted."""
    few, many = (steps(diagonal(terms)) for terms in (10, 40))
    assert many < 8 * few
    monkeypatch.setattr(bounds, "_search", None)
    assert steps(diagonal(40)) == many  # a proof that is found counts as it did


def test_marks_are_found_in_one_look():
    start = process_time()
    assert marks_for("#" + "q" + "z" * 60_000).spec == "q" + "z" * 60_001 + "s"
    assert marks_for("qzz qz").spec == "qzzzs" and marks_for("").spec == "qzs"
    assert process_time() - start < 1
