"""bench_table: Markdown tables with aligned columns like those of tools/report/table.c, and numbers for them."""

from statistics import mean, stdev

Z = 1.96  # 95 % of a normal distribution lie within this number of standard deviations.


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


def student(count):
    """Returns about how many standard errors the 95 % interval of the mean of this number of values is wide, to each
    side (the quantile of Student's t distribution, by the first terms of its series)."""
    free = count - 1
    return Z + (Z ** 3 + Z) / (4 * free) + (5 * Z ** 5 + 16 * Z ** 3 + 3 * Z) / (96 * free ** 2)


def interval(values):
    """Returns "mean (low-high)" with the 95 % interval of the mean. For fewer than four values student() is too small,
    so the result is the mean alone."""
    if len(values) < 4:
        return number(mean(values))
    half = student(len(values)) * stdev(values) / len(values) ** 0.5
    return f"{number(mean(values))} ({number(mean(values) - half)}-{number(mean(values) + half)})"
