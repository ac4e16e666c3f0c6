"""bench_table: Markdown tables with aligned columns like those of tools/report/table.c, and numbers for them."""


def table(heads, rows):
    cells = [[str(cell) for cell in row] for row in [heads, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    lines = ["| " + " | ".join([row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in
                                                            zip(row[1:], widths[1:])]) + " |" for row in cells]
    rule = "|" + "|".join(["-" * (widths[0] + 2)] + ["-" * (width + 1) + ":" for width in widths[1:]]) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def number(value):
    """Returns the value with three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(values):
    return f"{number(min(values))}-{number(max(values))}"
