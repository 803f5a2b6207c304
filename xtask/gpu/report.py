"""The results as a table and a drawing."""


def write(results, out):
    """DIR/table.md and, where there is matplotlib, DIR/plot.svg."""
    (out / "table.md").write_text(table(results))
    plot(results, out / "plot.svg")


def table(results):
    """Markdown."""
    lines = ["| step | is | seconds |", "|---|---|---|"]
    for name, step in results["steps"].items():
        wrong = step.get("wrong", [])
        is_ = f"{len(wrong)} wrong" if wrong else f"left out: {step['left out']}" if "left out" in step else "ok"
        lines.append(f"| {name} | {is_} | {step.get('seconds', '')} |")
    for name, step in results["steps"].items():
        plain = {
            key: value for key, value in step.items() if key not in ("wrong", "races", "loops", "rows", "seconds", "left out")
        }
        if plain or step.get("wrong"):
            lines += ["", f"**{name}**", ""]
        lines += [f"- {key}: {value}" for key, value in plain.items()]
        lines += [f"- wrong: {text}" for text in step.get("wrong", [])]
    for race in races(results):
        unit = race["unit"]
        lines += ["", f"**{race['name']}**", "", f"| | ms | {unit} | of {race['reference']} |", "|---|---|---|---|"]
        for name, row in race["rows"].items():
            ratio = "" if row["ratio"] is None else f"{row['ratio']:.3f}"
            lines.append(f"| {name} | {row['ms']:.4f} | {row[unit]:.1f} | {ratio} |")
        lines += [f"| {name} | {why} | | |" for name, why in race["absent"].items()]
    loops = results["steps"].get("cycles", {}).get("loops", {})
    if loops:
        lines += ["", "**clocks of an iteration**", "", "| loop | by the model | measured |", "|---|---|---|"]
        for name, one in loops.items():
            measured = f"{one['measured']:.0f}" if "measured" in one else ""
            lines.append(f"| {name} | {one['predicted']} | {measured} |")
    rows = results["steps"].get("roofs", {}).get("rows", {})
    if rows:
        lines += ["", "**examples**", "", "| | ms | GB/s | TFLOP/s | of the nearer roof |", "|---|---|---|---|---|"]
        for name, row in sorted(rows.items(), key=lambda item: item[1].get("share", 0)):
            if "absent" in row:
                lines.append(f"| {name} | {row['absent']} | | | |")
                continue
            rates = f"{row['GB/s']:.0f} | {row['TFLOP/s']:.0f}"
            lines.append(f"| {name} | {row['ms']:.4f} | {rates} | {row['share']:.2f} |")
    return "\n".join(lines) + "\n"


def races(results):
    """All races, none where they were left out."""
    return results["steps"].get("ratios", {}).get("races", [])


def plot(results, path):
    """Bars of the ratios."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("svg")
    from matplotlib import pyplot

    all_ = races(results) or [{"name": "no GPU: nothing was measured", "reference": "", "rows": {}}]
    figure, axes = pyplot.subplots(len(all_), 1, figsize=(8, 2.2 * len(all_)), squeeze=False)
    for axis, race in zip(axes[:, 0], all_):
        rows = {name: row["ratio"] or 0 for name, row in race["rows"].items()}
        axis.barh(list(rows), list(rows.values()))
        axis.axvline(1, color="black", linewidth=0.8)
        axis.invert_yaxis()
        axis.set_title(f"{race['name']}, {race['reference']} = 1" if rows else race["name"], fontsize=9)
    figure.tight_layout()
    figure.savefig(path)
