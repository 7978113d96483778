"""Draws docs/performance.svg from the figures of a run: plot.py target/bench.json docs/performance.svg

The same figures give the same file, and its text stays text."""

import io
import json
import re
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "call-budget", "font.size": 9})

from matplotlib import pyplot  # noqa: E402: only now is it known what it draws with

OURS, DURABLE, FORGETS = "#1f6fb4", "#8a8f98", "#d8b365"


def colour(row):
    return OURS if row["subject"] == "call-budget" else DURABLE if row["durable"] == "yes" else FORGETS


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def panel(axes, rows, column, title):
    """One bar a row on a logarithmic axis, since the figures differ by factors."""
    rows = list(reversed(rows))
    bars = axes.barh([row["subject"] for row in rows], [row[column] for row in rows], color=[colour(row) for row in rows])
    # At least: the run was too short for some of the tasks.
    bounds = [">= " if column != "grants_per_s" and row["never_served"] else "" for row in rows]
    labels = [bound + number(row[column]) for bound, row in zip(bounds, rows)]
    axes.bar_label(bars, labels, padding=3, fontsize=8)
    axes.set_xscale("log")
    axes.minorticks_off()
    low, high = min(row[column] for row in rows), max(row[column] for row in rows)
    axes.set_xlim(low / 3, high * 6)
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e4e6ea", linewidth=0.6)
    axes.set_axisbelow(True)


def main():
    source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        found = json.load(file)
    if "peers_many_callers" not in found or found["smoke"]:
        print("plot: this run has no figures beside others, docs/performance.svg stays as it was")
        return
    compared = [row for row in found["peers_many_callers"] if "Python" not in row["subject"]]
    crowd = max({row["callers"] for row in compared}, key=lambda callers: int(callers.split(" x ")[1]))
    many = [row for row in compared if row["callers"] == crowd]
    one = [row for row in found["peers_one_caller"] if "Python" not in row["subject"]]
    figure, (first, second, third) = pyplot.subplots(
        3, 1, figsize=(8, 9), height_ratios=[len(many), len(many), len(one)], layout="constrained"
    )
    panel(first, many, "grants_per_s", f"Grants a second, {crowd} waiting tasks (more is better)")
    panel(second, many, "p99_ms", f"Wait for a grant in ms, p99, {crowd} waiting tasks (less is better)")
    panel(third, one, "p50_ms", "Wait for a grant in ms, p50, one caller (less is better)")
    kinds = {"call-budget": OURS, "durable": DURABLE, "a crash loses grants": FORGETS}
    handles = [matplotlib.patches.Patch(color=colour, label=label) for label, colour in kinds.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    drawn = io.StringIO()
    figure.savefig(drawn, facecolor="white", metadata={"Date": None, "Creator": None})
    # A line for each element, not for each corner of it, nor for its end.
    text = re.sub(r' d="[^"]*"', lambda path: " " + " ".join(path[0].split()), drawn.getvalue())
    text = re.sub(r"\n *</", "</", text)
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)


main()
