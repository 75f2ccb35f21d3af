"""Words a syntax error: what was expected, and for a common slip the corrected code.

Input: the tokens, the position of the one that does not fit, the terminals that were possible there. Output: one
`Diagnostic`. `RULES` are tried in order; each knows one slip. Example: after `x[i] else 0` a `*` gets "`else` belongs to
one read: write the parentheses". A message never names a terminal of the grammar.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from tritongen.errors import Diagnostic, Fix, Source, Span
from tritongen.syntax import foreign
from tritongen.syntax.lexer import END, Token
from tritongen.syntax.names import REDUCERS, SAME, check_name, kind_of, suggest
from tritongen.syntax.place import Place
from tritongen.syntax.torch_names import TORCH_DTYPES, UNFIT

OPERATORS = frozenset("PLUS MINUS MULOP POW CMP LT GT AND OR".split())
COMPARISONS = frozenset("CMP LT GT".split())
EXPRESSION = frozenset("NAME UPPER NUMBER LPAR REDUCER INF BOOL".split())
CLAUSES = frozenset("GRAD REF DOC PRECISION AUTOCAST TOL TUNE".split())
WORDS = {
    "NAME": "a name",
    "UPPER": "an upper-case name",
    "DTYPE": "a dtype",
    "NUMBER": "a number",
    "STRING": "a string in double quotes",
    "REDUCER": "a reducer",
    "ELLIPSIS": "`...`",
    "ARROW": "`->`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "LT": "`<`",
    "GT": "`>`",
    "COMMA": "`,`",
    "COLON": "`:`",
    "EQUAL": "`=`",
    "VBAR": "`|`",
    "MINUS": "a number",
    "INF": "a number",
    "BOOL": "`true`",
    END: "the end",
}


def explain(
    source: Source, tokens: list[Token], at: int, accepted: frozenset[str], start: str
) -> Diagnostic:
    place = Place(source, tokens, at, accepted)
    for rule in RULES:
        finding = rule(place)
        if finding:
            return finding
    if start == "start" and {"OP", "FN"} <= accepted:
        help = "`op name<T: float>(x: T[N]) -> y: T[N] { y[n] = ... }`"
        return place.finding("expected `op` or `fn`", help)
    return place.finding(f"expected {expected(accepted)}", label=_found(place.token()))


def expected(accepted: frozenset[str]) -> str:
    """The terminals in words: `)`, `,` or an operator."""
    rest, words = set(accepted), []
    if OPERATORS - {"LT", "GT"} <= rest or {"PLUS", "MINUS", "MULOP", "POW"} <= rest:
        if "NAME" in rest:
            words.append("a new line")
        rest -= OPERATORS | {"ELSE", "LPAR", "LSQB", "NAME"}
        words.append("an operator")
    if EXPRESSION <= rest:
        rest -= EXPRESSION | {"MINUS", "NOT", "DTYPE"}
        words.append("an expression")
    if CLAUSES <= rest:
        rest -= CLAUSES
        words.append("a clause")
    marks = [WORDS.get(symbol, f"`{symbol.lower()}`") for symbol in sorted(rest)]
    words = sorted(set(marks), key=lambda word: (word[0] != "`", word)) + words
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _found(token: Token) -> str:
    return "the text ends here" if token.type == END else ""


# ---- one function for each slip ------------------------------------------------


def else_with_operator(place: Place) -> Diagnostic | None:
    """`x[i] else 0 * w[i]` and `w[i] * x[i] else 0`."""
    token = place.token()
    fill = -1 if place.token(-2).type == "ELSE" else -2
    if token.type in OPERATORS and place.token(fill - 1).type == "ELSE":
        first, last = fill - 2, -1
        head = f"({_read(place, first, last)})"
        message = "`else` belongs to one read: write the parentheses"
        fix = Fix(place.across(place.opener(first) - 1, last), head)
        return place.finding(message, code="E107", fix=fix)
    if token.type == "ELSE" and place.token(-1).type == "RSQB":
        last = 2 if place.token(1).type == "MINUS" else 1
        message = "`else` belongs to one read: write the parentheses"
        fix = Fix(place.across(place.opener(-1) - 1, last), f"({_read(place, -1, last)})")
        return place.finding(message, code="E107", fix=fix)
    return None


def _read(place: Place, bracket: int, last: int) -> str:
    opener = place.opener(bracket)
    return place.text(place.token(opener - 1), place.token(last))


def else_elsewhere(place: Place) -> Diagnostic | None:
    if place.token(-1).type == "ELSE" or (
        place.token(-2).type == "ELSE" and place.token(-1).type == "MINUS"
    ):
        help = "choose between two values with `where(condition, a, b)`"
        return place.finding("only a literal follows `else`", help, code="E107")
    if place.token().type == "ELSE":
        help = "choose between two values with `where(condition, a, b)`"
        return place.finding("`else` follows a read such as `x[i]`", help, code="E107")
    return None


def chained_comparison(place: Place) -> Diagnostic | None:
    if place.token().type in COMPARISONS and {"AND", "OR"} <= place.accepted:
        if place.token().type not in place.accepted:
            return place.finding("comparisons do not chain", code="E108", **_chain(place))
    return None


def _chain(place: Place) -> dict[str, Any]:
    """`0 < x[i] < 1`: what is compared twice is written twice."""
    middle = place.operand(0)
    before = place.operand(middle[0] - 1) if middle else None
    if middle is None or before is None or place.token(middle[0] - 1).type not in COMPARISONS:
        return {"help": "`a < b and b < c`"}
    last = 1 if place.is_word(1) else 0
    first = place.text(place.token(before[0]), place.token(middle[1]))
    second = place.text(place.token(middle[0]), place.token(last))
    return {"fix": Fix(place.across(before[0], last), f"{first} and {second}")}


def doubled_mark(place: Place) -> Diagnostic | None:
    pair = place.token().text + place.token(1).text
    if place.token().end != place.token(1).start:
        return None
    if pair == "||":
        return place.finding("logical or is written `or`")
    if pair in ("+=", "-=", "*=", "/="):
        help = "write all terms in one line: `y[n] = a[n] + b[n]`; a sum over an index is `sum[k](...)`"
        if place.token(-1).text == place.token(-2).text == "]":  # y[idx[n]] +=
            help = UNFIT["scatter"]
        return place.finding("each name is assigned once", help)
    if pair == "{{":
        return place.finding(f"`{pair}` is not expected here", "names are made of a-z, 0-9 and _")
    return None


def equal_sign(place: Place) -> Diagnostic | None:
    token, before = place.token(), place.token(-1)
    if token.type == "EQUAL" and place.between("WITH", "LBRACE"):
        if before.type == "NAME":
            message = f"`=` defines a size, and a size is upper case; `{before.text}` is not"
            return place.finding(message, f"to require that they are equal: `{before.text} == ...`")
        fix = Fix(place.span(), "==")
        return place.finding("`=` defines a size; equality is written `==`", fix=fix)
    if token.type == "EQUAL" and "CMP" in place.accepted:
        return place.finding("equality is written `==`", fix=Fix(place.span(), "=="))
    if token.text == "==" and "EQUAL" in place.accepted:
        return place.finding("a line assigns with one `=`", fix=Fix(place.span(), "="))
    if token.type == "COLON" and "EQUAL" in place.accepted:
        last = 1 if place.token(1).type == "EQUAL" else 0
        return place.finding("a line assigns with `=`", fix=Fix(place.across(0, last), "="))
    return None


def reserved_name(place: Place) -> Diagnostic | None:
    token = place.token()
    word, next = token.text, place.token(1).text
    if "NAME" in place.accepted and kind_of(word):
        # at the start of a line only `word =` and `word[...] =` declare it
        if "PLUS" in place.accepted and next not in ("=", "["):
            return None
        what = "op" if place.token(-1).type == "OP" else "name"
        return check_name(word, place.span(), what)
    before = place.token(-1)
    if word in ("=", "[") and before.type in CLAUSES:
        return check_name(before.text, place.span(-1), "temporary")
    return None


def letter_case(place: Place) -> Diagnostic | None:
    token, before = place.token(), place.token(-1)
    if token.type == "UPPER" and "NAME" in place.accepted and "UPPER" not in place.accepted:
        fix = Fix(place.span(), suggest(token.text, "name"))
        message = "upper case is for sizes and type parameters"
        found = place.finding(message, "rename it: {}", code="E103", fix=fix)
        return replace(found, otherwise=f"rename it: `{fix.text}`")  # used elsewhere, too
    if token.type == "NAME" and "UPPER" in place.accepted and "NAME" not in place.accepted:
        if "DTYPE" not in place.accepted:
            help = f"rename it: `{token.text[0].upper()}`"
            return place.finding("a type parameter is upper case", help, code="E103")
    if token.type == "LSQB" and before.type == "UPPER":
        fix = Fix(place.span(-1), before.text.lower())
        message = f"`{before.text}` is a size, and has no elements"
        return place.finding(message, "operands are lower case", fix=fix)
    return None


def unknown_dtype(place: Place) -> Diagnostic | None:
    token = place.token()
    if token.type not in ("NAME", "UPPER", "NUMBER", "LSQB") or "DTYPE" not in place.accepted:
        return None
    if "PLUS" in place.accepted or "NUMBER" in place.accepted:  # an expression may stand here
        return None
    if token.type == "LSQB":
        return place.finding("the dtype is missing", "`x: T[N]` with `<T: float>`, or `x: f32[N]`")
    word = token.text.lower()
    near = word if kind_of(word) == "a dtype" else TORCH_DTYPES.get(word)
    known = "dtypes: f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool f8e4m3 f8e5m2; `T` after `<T: float>`"
    message = f"there is no dtype `{token.text}`"
    if near:
        fix = Fix(place.span(), near)
        return place.finding(message, "the dtype is called {} here", code="E110", fix=fix)
    return place.finding(message, known, code="E110")


def signature(place: Place) -> Diagnostic | None:
    token, before = place.token(), place.token(-1)
    if place.accepted == {"ARROW"}:
        help = "`op f(x: T[N]) -> y: T[N] { ... }`"
        return place.finding("expected `->` and the outputs", help)
    if place.accepted == {"COLON"} and before.type == "UPPER":
        fix = Fix(place.span(-1), f"{before.text}: float")
        return place.finding(f"`{before.text}` needs its dtypes", at=place.span(-1), fix=fix)
    if place.accepted == {"COLON"} and before.type == "NAME":
        word = before.text
        help = f"`{word}: T[N]` with `<T: float>`, or `{word}: f32` for a number"
        return place.finding(f"`{word}` needs a type", help, at=place.span(-1))
    if before.type in ("GT", "NAME") and place.accepted in ({"LPAR"}, {"LT", "LPAR"}):
        return place.finding("expected the operands in parentheses", "`op f<T: float>(x: T[N])`")
    if token.type == "RPAR" and "COMMA" in place.accepted and place.between("ARROW", "LBRACE"):
        first = place.opener(0)
        if place.token(first - 1).type == "ARROW":
            text = place.text(place.token(first + 1), before)
            fix = Fix(place.across(first, 0), text)
            return place.finding("one output stands without parentheses", at=fix.span, fix=fix)
    if before.type == "ARROW" and token.type in ("UPPER", "DTYPE"):
        return place.finding("an output needs a name", f"`-> y: {token.text}[...]`")
    if token.type == "ARROW" and "EQUAL" in place.accepted:
        return place.finding("a macro has no types", "`fn f(x) = ...`")
    for clause, opener in (
        (0, -1),
        (-1, -2),
    ):  # the word of a clause may have been taken for a name
        if place.token(opener).type == "LBRACE" and token.text not in ("=", "["):
            if place.token(clause).type in CLAUSES | {"RBRACE"}:
                at = place.span(clause)
                return place.finding("expected at least one line", "`y[n] = x[n]`", at=at)
    if token.type == "NAME" and CLAUSES <= place.accepted and "NAME" not in place.accepted:
        return place.finding("the lines of an op come before its clauses")
    return None


def missing_string(place: Place) -> Diagnostic | None:
    before = place.token(-1)
    if place.accepted == {"STRING"}:
        help = f'`{before.text} "..."`'
        return place.finding(f"`{before.text}` is followed by a string in double quotes", help)
    return None


def reducer_parentheses(place: Place) -> Diagnostic | None:
    before = place.token(-1)
    if before.type == "RSQB" and place.accepted == {"LPAR"}:
        opener = place.opener(-1)
        head = place.text(place.token(opener - 1), before)
        return place.finding("expected parentheses around what is reduced", f"`{head}(...)`")
    if before.type == "REDUCER" and place.accepted == {"LPAR", "LSQB"}:
        help = f"`{before.text}[k](x[k])`"
        return place.finding(f"expected the indices that `{before.text}` runs over", help)
    return None


def trailing_comma(place: Place) -> Diagnostic | None:
    if place.token(-1).type == "COMMA" and place.token().type in ("RPAR", "RSQB", "LBRACE", "GT"):
        return place.finding("nothing follows the comma", "delete it", at=place.span(-1))
    return None


def unknown_reducer(place: Place) -> Diagnostic | None:
    """`mx[d](x[n, d])`, where nothing of the spec is called `mx`."""
    if place.token().type != "LPAR" or place.token(-1).type != "RSQB":
        return None
    first = place.opener(-1) - 1
    name = place.token(first)
    if any(
        t.text == name.text and _is_defined(place.tokens, k) for k, t in enumerate(place.tokens)
    ):
        return None
    near = get_close_matches(name.text.lower(), REDUCERS, 1, 0.6)  # of three letters two
    near = [same] if (same := SAME.get(name.text)) in REDUCERS else near
    if name.type != "NAME":
        return None
    at, message = place.span(first), f"there is no reducer `{name.text}`"
    if not near or name.text in UNFIT:  # a median is no mean
        help = UNFIT.get(name.text, f"reducers: {' '.join(REDUCERS)}")
        return place.finding(message, help, at=at)
    return place.finding(message, "did you mean {}?", at=at, fix=Fix(at, near[0]))


def _is_defined(tokens: list[Token], at: int) -> bool:
    """Whether an operand or a line begins there: `x: ...`, `x = ...`, `x[n] = ...`."""
    depth, end = 0, at + 1
    while end < len(tokens) and (tokens[end].type == "LSQB" or depth):
        depth += (tokens[end].type == "LSQB") - (tokens[end].type == "RSQB")
        end += 1
    return end < len(tokens) and tokens[end].type in ("COLON", "EQUAL")


def juxtaposition(place: Place) -> Diagnostic | None:
    """`2 x[i]`, `(a) (b)`, `f(a b)`."""
    token = place.token()
    begins = token.type in EXPRESSION | {"DTYPE"}
    if not begins or "PLUS" not in place.accepted or token.type in place.accepted:
        return None
    if "COMMA" not in place.accepted:
        return place.finding("expected an operator", **_product(place, -1, 0))
    gap = Fix(Span(place.source, place.token(-1).end, token.start), ", ")
    product = _product(place, -1, 0)
    others = (product["fix"],) if product else ()
    message = "expected an operator or a comma"
    found = place.finding(message, "write {}", fix=_with_neighbours(place, gap))
    return replace(found, others=others)


def missing_comma(place: Place) -> Diagnostic | None:
    """`(x: T[N] w: T[N])`."""
    token = place.token()
    if token.type not in ("NAME", "CONST") or not {"COMMA", "RPAR"} <= place.accepted:
        return None
    if "PLUS" in place.accepted or place.token(-1).type == "COMMA":
        return None
    gap = Fix(Span(place.source, place.token(-1).end, token.start), ", ")
    return place.finding("expected a comma", "write {}", fix=_with_neighbours(place, gap))


def _with_neighbours(place: Place, gap: Fix) -> Fix:
    """A comma with its neighbours, for display."""
    before = place.operand(0)
    first = before[0] if before else -1
    last = place.opener(first) if place.token(first).text in tuple(")]}") else first
    text = place.source.text
    start, end = place.token(last).start, place.token().end
    shown = text[start : gap.span.start] + gap.text + text[gap.span.end : end]
    return Fix(Span(place.source, start, end), shown)


def half_a_line(place: Place) -> Diagnostic | None:
    """`y[i] = 2 x[i]` and `return x`: the name was taken for the start of the next line."""
    if "EQUAL" not in place.accepted or not place.accepted <= {"EQUAL", "LSQB"}:
        return None
    first = place.opener(-1) - 1 if place.token(-1).type == "RSQB" else -1
    name, before = place.token(first), place.token(first - 1)
    between = place.source.text[before.end : name.start]
    if "\n" in between or before.type in ("LBRACE", "FN", "RPAR", ""):
        return place.finding("expected `=`", "a line is `name[indices] = expression`")
    at = place.span(first)
    return place.finding("expected an operator", at=at, **_product(place, first - 1, first))


def _product(place: Place, first: int, second: int) -> dict[str, Any]:
    a, b = place.token(first), place.token(second)
    simple = ("NAME", "UPPER", "NUMBER")
    if a.type not in simple or b.type not in simple or len(a.text + b.text) >= 60:
        return {}
    fix = Fix(place.across(first, second), f"{a.text} * {b.text}")
    return {"help": "a product is written {}", "fix": fix}


RULES = (
    *foreign.RULES,
    else_with_operator,
    else_elsewhere,
    chained_comparison,
    doubled_mark,
    equal_sign,
    signature,
    reserved_name,
    missing_string,
    letter_case,
    unknown_dtype,
    half_a_line,
    reducer_parentheses,
    trailing_comma,
    unknown_reducer,
    missing_comma,
    juxtaposition,
)
