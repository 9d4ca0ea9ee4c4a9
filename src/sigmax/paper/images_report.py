"""Tables and pictures of the images, from records alone."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from sigmax.data import IMAGE_SETS
from sigmax.paper.generative import (
    GENERATIVE_METHODS,
    LEAST_PIXEL_STD,
    RunSettings,
    groups_of,
    score_text,
    title_with_settings,
)
from sigmax.paper.image_sheets import unpack
from sigmax.paper.latent_pictures import shown_seeds, variance_figure
from sigmax.runs.records import Record
from sigmax.runs.tables import ReportTable, mean_and_error

__all__ = ["PAPER_IMAGES", "image_figures", "image_tables"]

PAPER_IMAGES = {
    "elbo_train": {
        "mnist": {"vae": (2053.01, 1.60), "comb-vae": (2152.31, 3.32)},
        "fashion_mnist": {"vae": (1506.31, 2.71), "comb-vae": (1621.29, 7.23)},
        "cifar10": {"vae": (1980.84, 3.32), "comb-vae": (2057.32, 8.13)},
        "svhn": {"vae": (3696.35, 2.94), "comb-vae": (3701.41, 5.84)},
    },
    "log_prob": {
        "mnist": {"vae": (1914.77, 2.15), "comb-vae": (2018.37, 4.35)},
        "fashion_mnist": {"vae": (1481.38, 3.68), "comb-vae": (1567.23, 4.82)},
        "cifar10": {"vae": (1809.43, 10.32), "comb-vae": (1891.39, 20.21)},
        "svhn": {"vae": (3606.28, 2.75), "comb-vae": (3614.39, 7.91)},
    },
}
"""Score -> data set -> method -> mean and ±, as printed."""

DENSITY = {
    "train ELBO": ("elbo_train", 1),
    "test ELBO": ("elbo_test", 1),
    "test log p(x)": ("log_prob", 1),
    "RMSE": ("rmse", 4),
}
SPREAD = {
    "bias": ("variance_bias", 5),
    "ratio": ("variance_ratio", 2),
    "on codes": ("variance_on_codes", 3),
    "median": ("variance_median", 3),
    "far": ("variance_far", 2),
}


def image_tables(records: Sequence[Record]) -> list[ReportTable]:
    """Two tables per set and settings, and the paper's beside ours."""
    groups = groups_of(records)
    tables = []
    for (dataset, settings), methods in groups.items():
        title = IMAGE_SETS[dataset].title if dataset in IMAGE_SETS else dataset
        tables.append(density_table(title, settings, methods))
        tables.append(spread_table(title, settings, methods))
    for settings in dict.fromkeys(settings for _, settings in groups):
        sets = {name: methods for (name, s), methods in groups.items() if s == settings}
        tables.append(published_images_table(settings, sets))
    return tables


def density_table(title: str, settings: str, methods: dict[str, list[Record]]) -> ReportTable:
    """A row per method: bounds, densities, reconstructions and time."""
    first = next(iter(methods.values()))[0]
    run, n_seeds = RunSettings.of(first.task), max(map(len, methods.values()))
    return ReportTable(
        title=title_with_settings(f"images: {title}", settings),
        header=["model", *DENSITY, "seconds to fit"],
        rows=[
            [
                GENERATIVE_METHODS[method].title,
                *(score_text(seeds, name, digits) for name, digits in DENSITY.values()),
                f"{sum(record.seconds['fit'] for record in seeds) / len(seeds):.0f}",
            ]
            for method, seeds in methods.items()
        ],
        notes=[
            *([f"{title} here is {first.data['note']}."] if first.data["note"] else []),
            f"{first.data['n_train']:,} images to train on, the first {first.data['n_test']:,} test"
            f" images, {first.data['n_features']:,} pixel values in [0, 1] each. Mean ± standard"
            f" error over seeds ({n_seeds}); nats per image; log p(x) by importance sampling with"
            f" {run.n_importance} codes per image; RMSE of the reconstruction. No decoder has a std"
            f" (Student-t: scale) below {LEAST_PIXEL_STD}, which bounds the density of pixels that"
            " hardly change.",
            device_note(methods),
        ],
    )


def spread_table(title: str, settings: str, methods: dict[str, list[Record]]) -> ReportTable:
    """A row per method: how the predicted variance compares with errors and with the data's."""
    return ReportTable(
        title=title_with_settings(f"images: {title}, the decoder's variance", settings),
        header=["model", *SPREAD],
        rows=[
            [
                GENERATIVE_METHODS[method].title,
                *(score_text(seeds, name, digits) for name, digits in SPREAD.values()),
            ]
            for method, seeds in methods.items()
        ],
        notes=[
            "Bias: mean predicted variance at the codes of test images, less the mean squared"
            " residual; ratio: the first over the second. On codes, and far from all codes: summed"
            " over pixels, over the variance of the data; median: of this quotient on the codes,"
            " pixel by pixel, where pixels vary."
        ],
    )


def device_note(methods: dict[str, list[Record]]) -> str:
    """On what the seconds were measured, and how many models shared a training."""
    found = [record for seeds in methods.values() for record in seeds]
    devices = ", ".join(dict.fromkeys(str(r.machine.get("device", "?")) for r in found))
    together = max(int(r.seconds.get("together", 1)) for r in found)
    shared = f"; {together} seeds were trained at once and share the time" if together > 1 else ""
    return f"Seconds without compilation, on: {devices}{shared}."


def published_images_table(settings: str, sets: dict[str, dict[str, list[Record]]]) -> ReportTable:
    """The paper's table, and ours beside it."""
    names = {"elbo_train": "training ELBO", "log_prob": "test log p(x)"}
    compared = ("vae", "comb-vae")
    rows = []
    for score, paper in PAPER_IMAGES.items():
        for dataset, methods in sets.items():
            if dataset not in paper:
                continue
            row = [f"{names[score]}, {IMAGE_SETS[dataset].title}"]
            for method in compared:
                mean, error = paper[dataset][method]
                ours = [record.scores[score] for record in methods.get(method, [])]
                row += [f"{mean:.2f} ± {error:.2f}", mean_and_error(ours) if ours else ""]
            rows.append(row)
    parts = [
        IMAGE_SETS[dataset].title
        for dataset, methods in sets.items()
        if next(iter(methods.values()))[0].data["note"]
    ]
    subsets = f" Subsets here: {', '.join(parts)}." if parts else ""
    titles = [GENERATIVE_METHODS[method].title for method in compared]
    header = [f"{title}, {who}" for title in titles for who in ("paper", "ours")]
    return ReportTable(
        title=title_with_settings("images: the paper's table and ours", settings),
        header=["", *header],
        rows=rows,
        notes=[
            "Not the same quantities. In the published code, log p(x) is the reconstruction term of"
            " one drawn code per image; ours is the marginal density by importance sampling. The"
            " paper gives CIFAR10 and SVHN 32 x 32 x 1 values, ours have 32 x 32 x 3, and nats are"
            " summed over them." + subsets
        ],
    )


def image_figures(records: Sequence[Record]) -> dict[str, Figure]:
    """Per set the first seed's sheets of samples and, where the latent space is a plane, maps."""
    figures: dict[str, Figure] = {}
    for dataset, shown in shown_seeds(records).items():
        title = IMAGE_SETS[dataset].title if dataset in IMAGE_SETS else dataset
        figures[f"images_{dataset}"] = sheet_figure(shown, title)
        maps = {method: record for method, record in shown.items() if "codes" in record.curves}
        if maps:
            text = f"{title}: variance over the latent plane, with codes of test images"
            figures[f"images_{dataset}_variance"] = variance_figure(maps, title=text)
    return figures


def sheet_figure(shown: dict[str, Record], title: str) -> Figure:
    """Each model's sheet of samples."""
    figure = Figure(figsize=(0.4 + 4.4 * len(shown), 5.0), layout="constrained")
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    is_plane = any("codes" in record.curves for record in shown.values())
    for axes, (method, record) in zip(panels, shown.items(), strict=True):
        extent = (-4, 4, -4, 4) if is_plane else None
        axes.imshow(unpack(record.data["sheet"]), cmap="gray_r", vmin=0, vmax=1, extent=extent)
        axes.set_title(GENERATIVE_METHODS[method].title, fontsize=11)
        if not is_plane:
            axes.set_axis_off()
    where = "over the latent plane" if is_plane else "from the prior"
    figure.suptitle(f"{title}: samples with noise, {where}", fontsize=12)
    return figure
