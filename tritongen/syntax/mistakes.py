"""A syntax error in words: what was expected, and for a common slip the corrected code.

Input: the tokens, the position of the one that fits nothing, the terminals that would have fitted.
Output: one `Diagnostic`. `RULES` are tried in order; each knows one slip. Example: after
`x[i] else 0` a `*` gets "`else` covers one read; write the parentheses". Never a terminal's name.
"""

from __future__ import annotations

from dataclasses import dataclass

from tritongen.errors import Diagnostic, Source, Span
from tritongen.syntax.lexer import END, Token
from tritongen.syntax.names import PYTHON, check_name, kind_of, suggest

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
DTYPES = {
    "float64": "f64", "double": "f64", "fp64": "f64",
    "float32": "f32", "single": "f32", "fp32": "f32",
    "float16": "f16", "half": "f16", "fp16": "f16", "bfloat16": "bf16",
    "int64": "i64", "long": "i64", "int32": "i32", "int16": "i16", "short": "i16", "int8": "i8",
    "uint8": "u8", "byte": "u8", "boolean": "bool",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where the parser stopped."""

    source: Source
    tokens: list[Token]
    at: int
    accepted: frozenset[str]

    def token(self, offset: int = 0) -> Token:
        index = self.at + offset
        return self.tokens[index] if 0 <= index < len(self.tokens) else Token("", "", 0, 0)

    def span(self, offset: int = 0) -> Span:
        token = self.token(offset)
        return Span(self.source, token.start, token.end)

    def text(self, first: Token, last: Token) -> str:
        return self.source.text[first.start : last.end]

    def opener(self, offset: int) -> int:
        """The offset of the bracket that the one at `offset` closes."""
        depth = 0
        for back in range(offset, -self.at - 1, -1):
            depth += (self.token(back).text in tuple(")]}")) - (
                self.token(back).text in tuple("([{")
            )
            if depth == 0:
                return back
        return offset

    def between(self, keyword: str, stop: str) -> bool:
        """Whether `keyword` stands before, with no `stop` in between."""
        for token in reversed(self.tokens[: self.at]):
            if token.type in (keyword, stop):
                return token.type == keyword
        return False

    def finding(self, message: str, help: str = "", code: str = "E101", label: str = "", at=None):
        return Diagnostic(code, message, at or self.span(), label=label, help=help)


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
        help = f"`{head} {token.text} ...` or `... {token.text} {head}`"
        message = "`else` covers one read; write the parentheses"
        return place.finding(message, help, code="E107")
    if token.type == "ELSE" and place.token(-1).type == "RSQB":
        last = 2 if place.token(1).type == "MINUS" else 1
        help = f"`({_read(place, -1, last)})`"
        return place.finding("`else` covers one read; write the parentheses", help, code="E107")
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
            help = "`a < b and b < c`"
            return place.finding("comparisons do not chain", help, code="E108")
    return None


def doubled_mark(place: Place) -> Diagnostic | None:
    pair = place.token().text + place.token(1).text
    if place.token().end != place.token(1).start:
        return None
    if pair == "||":
        return place.finding("logical or is written `or`")
    if pair in ("+=", "-=", "*=", "/="):
        help = "a sum over an index is `sum[k](...)`"
        return place.finding("each name is assigned once", help)
    if pair == "{{":
        return place.finding(f"`{pair}` means nothing here", "names are made of a-z, 0-9 and _")
    return None


def equal_sign(place: Place) -> Diagnostic | None:
    token, before = place.token(), place.token(-1)
    if token.type == "EQUAL" and place.between("WITH", "LBRACE"):
        if before.type == "NAME":
            message = f"only a size, which is upper case, is defined by `=`; `{before.text}` is not"
            return place.finding(message, f"to require that they are equal: `{before.text} == ...`")
        return place.finding("`=` defines a size; equality is written `==`", "`... == ...`")
    if token.type == "EQUAL" and "CMP" in place.accepted:
        return place.finding("equality is written `==`", "`a == b`")
    if token.text == "==" and "EQUAL" in place.accepted:
        return place.finding("a line assigns with one `=`", "`y[n] = ...`")
    if token.type == "COLON" and "EQUAL" in place.accepted and place.token(1).type == "EQUAL":
        return place.finding("a line assigns with `=`")
    return None


def slice_in_read(place: Place) -> Diagnostic | None:
    if place.token().type == "COLON" and "RSQB" in place.accepted:
        help = "every element has its index: `y[i] = x[i + 1]`"
        return place.finding("there are no slices", help)
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
        help = f"call it `{suggest(token.text, 'name')}`"
        message = "upper case is for sizes and type parameters"
        return place.finding(message, help, code="E103")
    if token.type == "NAME" and "UPPER" in place.accepted and "NAME" not in place.accepted:
        if "DTYPE" not in place.accepted:
            help = f"call it `{token.text[0].upper()}`"
            return place.finding("a type parameter is upper case", help, code="E103")
    if token.type == "LSQB" and before.type == "UPPER":
        help = f"operands are lower case: `{before.text.lower()}[...]`"
        return place.finding(f"`{before.text}` is a size and has no elements", help)
    return None


def unknown_dtype(place: Place) -> Diagnostic | None:
    token = place.token()
    if token.type not in ("NAME", "NUMBER", "LSQB") or "DTYPE" not in place.accepted:
        return None
    if "PLUS" in place.accepted or "NUMBER" in place.accepted:  # an expression may stand here
        return None
    if token.type == "LSQB":
        return place.finding("the dtype is missing", "`x: T[N]` with `<T: float>`, or `x: f32[N]`")
    near = DTYPES.get(token.text)
    known = "dtypes: f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool f8e4m3 f8e5m2; `T` after `<T: float>`"
    help = f"it is called `{near}` here" if near else known
    return place.finding(f"there is no dtype `{token.text}`", help, code="E110")


def signature(place: Place) -> Diagnostic | None:
    token, before = place.token(), place.token(-1)
    if place.accepted == {"ARROW"}:
        help = "`op f(x: T[N]) -> y: T[N] { ... }`"
        return place.finding("expected `->` and the outputs", help)
    if before.type in ("GT", "NAME") and place.accepted in ({"LPAR"}, {"LT", "LPAR"}):
        return place.finding("expected the operands in parentheses", "`op f<T: float>(x: T[N])`")
    if before.type == "ARROW" and token.type in ("UPPER", "DTYPE"):
        return place.finding("an output has a name", f"`-> y: {token.text}[...]`")
    if token.type == "ARROW" and "EQUAL" in place.accepted:
        return place.finding("a macro has no types", "`fn f(x) = ...`")
    for clause, opener in ((0, -1), (-1, -2)):  # the word of a clause may have been taken for a name
        if place.token(opener).type == "LBRACE" and token.text not in ("=", "["):
            if place.token(clause).type in CLAUSES | {"RBRACE"}:
                at = place.span(clause)
                return place.finding("expected at least one line", "`y[n] = x[n]`", at=at)
    if token.type == "NAME" and CLAUSES <= place.accepted and "NAME" not in place.accepted:
        return place.finding("the lines of an op stand before its clauses")
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
        return place.finding("what is reduced stands in parentheses", f"`{head}(...)`")
    if before.type == "REDUCER" and place.accepted == {"LPAR", "LSQB"}:
        help = f"`{before.text}[k](x[k])`"
        return place.finding(f"expected the indices that `{before.text}` runs over", help)
    return None


def trailing_comma(place: Place) -> Diagnostic | None:
    if place.token(-1).type == "COMMA" and place.token().type in ("RPAR", "RSQB", "LBRACE", "GT"):
        return place.finding("nothing follows the comma", "delete it", at=place.span(-1))
    return None


def juxtaposition(place: Place) -> Diagnostic | None:
    """`2 x[i]`, `(a) (b)`, `f(a b)`."""
    token = place.token()
    begins = token.type in EXPRESSION | {"DTYPE"}
    if not begins or "PLUS" not in place.accepted or token.type in place.accepted:
        return None
    comma = " or a comma" if "COMMA" in place.accepted else ""
    return place.finding(f"expected an operator{comma}", _product(place.token(-1), token))


def half_a_line(place: Place) -> Diagnostic | None:
    """`y[i] = 2 x[i]` and `return x`: the name was taken for the start of the next line."""
    if "EQUAL" not in place.accepted or not place.accepted <= {"EQUAL", "LSQB"}:
        return None
    first = place.opener(-1) - 1 if place.token(-1).type == "RSQB" else -1
    name, before = place.token(first), place.token(first - 1)
    between = place.source.text[before.end : name.start]
    for word, offset in ((before.text, first - 1), (name.text, first)):
        if word in PYTHON and kind_of(word) == "a word of Python":
            help = "`where(condition, a, b)`" if word == "if" else ""
            return place.finding(f"there is no `{word}`", help, at=place.span(offset))
    if "\n" in between or before.type in ("LBRACE", "FN", "RPAR", ""):
        return place.finding("expected `=`", "a line is `name[indices] = expression`")
    return place.finding("expected an operator", _product(before, name), at=place.span(first))


def _product(a: Token, b: Token) -> str:
    simple = ("NAME", "UPPER", "NUMBER")
    is_short = a.type in simple and b.type in simple and len(a.text + b.text) < 60
    return f"a product is written `{a.text} * {b.text}`" if is_short else ""


RULES = (
    else_with_operator,
    else_elsewhere,
    chained_comparison,
    doubled_mark,
    equal_sign,
    slice_in_read,
    signature,
    reserved_name,
    missing_string,
    letter_case,
    unknown_dtype,
    half_a_line,
    reducer_parentheses,
    trailing_comma,
    juxtaposition,
)
