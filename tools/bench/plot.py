"""Draws BENCHMARKS.svg: images a second by card and batch, from the tables of BENCHMARKS.md whose first column ends in ", images".
usage: plot.py [--check]    --check: writes nothing, fails where the picture is not what the tables say"""
import pathlib, sys

HERE = pathlib.Path(__file__).resolve().parents[2]
SOURCE, PICTURE = HERE / "BENCHMARKS.md", HERE / "BENCHMARKS.svg"
WIDTH, PANEL, TOP, BAR, GAP, LABEL = 760, 380, 64, 15, 14, 44  # of the picture, a card's half, its head, bars, between batches, batch
COLOURS = {"megavit": "#1f6feb", "PyTorch": "#9aa4b1"}


def cards(text):
    """[(card, [(batch, our images a second, PyTorch's, ratio)])] of every table of cards."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip().strip("*") for cell in line.strip("|").split("|")]
        if line.startswith("|") and cells[0].endswith(", images"):
            names, rows = cells, []
            ours, theirs = (i for i, name in enumerate(names) if name == "img/s")
            found.append((cells[0][:-len(", images")], rows))
        elif not line.startswith("|"):
            names = None
        elif names and cells[0].isdigit():
            number = lambda i: float(cells[i].replace(",", ""))
            rows.append((cells[0], number(ours), number(theirs), cells[names.index("ratio")]))
    return found


def bar(x, y, scale, value, colour, text):
    length = value * scale
    return (f'<rect x="{x}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>\n'
            f'<text x="{x + length + 4:.1f}" y="{y + BAR - 3}">{text}</text>\n')


def picture(found):
    rows = max(len(table) for _, table in found)
    height = TOP + rows * (2 * BAR + GAP) + 8
    scale = (PANEL - LABEL - 125) / max(row[1] for _, table in found for row in table)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
           ' font-family="sans-serif" font-size="12" fill="#1f2328">\n'
           '<title>SigLIP2 base/16 at 224 px, bf16: images a second, megavit beside PyTorch</title>\n'
           f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
           '<text x="14" y="20" font-size="14" font-weight="bold">SigLIP2 base/16, 224 px, bf16: images a second, by batch</text>\n']
    x = WIDTH - 190
    for name, colour in COLOURS.items():
        out.append(f'<rect x="{x}" y="10" width="12" height="12" rx="2" fill="{colour}"/>\n<text x="{x + 17}" y="20">{name}</text>\n')
        x += 90
    for i, (card, table) in enumerate(found):
        left = i * PANEL + 14
        out.append(f'<text x="{left}" y="{TOP - 18}" font-weight="bold">{card}</text>\n')
        for j, (batch, ours, theirs, ratio) in enumerate(table):
            y = TOP + j * (2 * BAR + GAP)
            out.append(f'<text x="{left + LABEL - 8}" y="{y + BAR + 4}" text-anchor="end">{batch}</text>\n')
            out.append(bar(left + LABEL, y, scale, ours, COLOURS["megavit"], f'{ours:,.0f} ({ratio} x)'))
            out.append(bar(left + LABEL, y + BAR + 1, scale, theirs, COLOURS["PyTorch"], f'{theirs:,.0f}'))
    return "".join(out) + "</svg>\n"


def main():
    found = cards(SOURCE.read_text())
    if not found: sys.exit("BENCHMARKS.md has no table of a card")
    drawn = picture(found)
    if sys.argv[1:] == ["--check"]:
        if not PICTURE.exists() or PICTURE.read_text() != drawn: sys.exit("BENCHMARKS.svg is not what the tables say: run tools/bench/plot.py")
        return
    PICTURE.write_text(drawn)


if __name__ == "__main__": main()
