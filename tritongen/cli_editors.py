"""The commands that editors run: fmt, lsp.

tritongen fmt specs/*.op          # --check: change nothing, fail where something would change
tritongen lsp                     # speaks the language server protocol on stdin and stdout
"""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.argument("specs", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--check", is_flag=True, help="Write nothing; fail where a file would change.")
def fmt(specs: tuple[Path, ...], check: bool) -> None:
    """Lay out each SPEC: spaces, indentation, blank lines. `-` is standard input."""
    from tritongen.files import write_atomically
    from tritongen.syntax.layout import laid_out
    from tritongen.syntax.limits import read_source
    from tritongen.syntax.parse import parse

    changed = []
    for spec in specs:
        if str(spec) == "-":
            click.echo(laid_out(sys.stdin.read()), nl=False)
            continue
        source = read_source(spec)
        parse(source.text, str(spec))  # what does not parse is an error, not a layout
        text = laid_out(source.text)
        if text != source.text:
            changed.append(spec)
            if not check:
                write_atomically(spec, text)
    for spec in changed:
        click.echo(f"{'would change' if check else 'changed'}: {spec}", err=check)
    if check and changed:
        raise SystemExit(1)


@click.command()
def lsp() -> None:
    """Serve an editor: findings, hovers, definitions, formatting. Needs `pip install 'tritongen[lsp]'`."""
    try:
        from tritongen.lsp import server
    except ModuleNotFoundError as error:
        if error.name not in ("pygls", "lsprotocol"):
            raise
        raise click.ClickException("lsp needs pygls: pip install 'tritongen[lsp]'") from None
    server.start_io()
