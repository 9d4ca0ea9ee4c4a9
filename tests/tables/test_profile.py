"""Profiles of real and of synthetic tables."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from sigmax.errors import InvalidDataError
from sigmax.tables import Kind
from sigmax.tables.profile import profile_table
from sigmax.tables.reading import read_table

N = 600
TARGETS = {
    "ames": "Sale_Price",
    "diamonds": "price",
    "employee_salaries": "current_annual_salary",
    "hotel_rates": "avg_price_per_room",
    "kc_housing": "price",
    "taxis": "fare",
}


def findings(frame, target="y", **options):
    """Columns by the code of what was found about them."""
    found = profile_table(frame, target, **options).findings
    assert all(finding.text.endswith(".") for finding in found)
    return {finding.code: finding.columns for finding in found}


def make_table(rng, n=N) -> pd.DataFrame:
    """An honest table: numbers, a category and a target that they explain well but not exactly."""
    x = rng.normal(size=(n, 3))
    level = rng.choice(["a", "b", "c"], n)
    y = np.exp(0.7 * x[:, 0] + 0.3 * x[:, 1] + (level == "a") + 0.2 * rng.normal(size=n))
    columns = dict(zip(["x1", "x2", "x3"], x.T, strict=True))
    return pd.DataFrame({**columns, "level": level, "y": np.round(100 * y, 2)})


@pytest.fixture
def table():
    return make_table(np.random.default_rng(0))


@pytest.mark.parametrize("name", TARGETS)
def test_leaks_and_ids_of_real_tables_are_named_and_no_others(name, data_folder):
    frame = read_table(data_folder / "tables" / f"{name}.csv.gz")
    found = findings(frame, TARGETS[name])
    assert found.get("leak", ()) == (("total", "tip", "tolls") if name == "taxis" else ())
    assert "id" not in found and "constant" not in found
    if name == "taxis":
        left = findings(frame, "fare", drop=["total", "tip", "tolls"])
        assert "leak" not in left


@pytest.mark.parametrize("seed", range(5))
def test_an_honest_table_raises_no_alarm(seed):
    """Thresholds are far away: none of 200 seeds raised one."""
    assert findings(make_table(np.random.default_rng(seed))) == {}


@pytest.mark.parametrize(
    "copy",
    [
        lambda y, rng: y,
        lambda y, rng: np.log(y),
        lambda y, rng: -1.1 * y + 5,
        lambda y, rng: np.round(y, -1),
        lambda y, rng: y + 0.01 * y.std() * rng.normal(size=len(y)),
        lambda y, rng: np.array(list("abcd"))[np.digitize(y, y.quantile([0.25, 0.5, 0.75]))],
        lambda y, rng: np.where(y > y.median(), "high", "low"),
        lambda y, rng: pd.qcut(y, 5, labels=False),
        lambda y, rng: y + rng.choice([0, 2.5, 7], len(y)),
        lambda y, rng: y.where(rng.random(len(y)) < 0.7, y * rng.random(len(y))),
    ],
)
def test_copies_of_the_target_are_leaks(copy, table):
    rng = np.random.default_rng(1)
    assert findings(table.assign(copy=copy(table["y"], rng)))["leak"] == ("copy",)


def test_sums_products_and_durations_that_give_the_target_are_leaks(table):
    rng = np.random.default_rng(1)
    parts = pd.DataFrame({name: rng.gamma(1.5, 10.0, N).round(2) for name in "uvw"})
    added = table.assign(**parts, y=parts.sum(axis=1))
    assert set(findings(added)["leak"]) == {"u", "v", "w"}
    multiplied = table.assign(**parts + 1, y=(parts["u"] + 1) * (parts["v"] + 1))
    assert set(findings(multiplied)["leak"]) == {"u", "v"}
    begin = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 10**7, N), unit="s")
    seconds = rng.integers(60, 6000, N)
    timed = table.assign(begin=begin, end=begin + pd.to_timedelta(seconds, unit="s"), y=seconds)
    assert set(findings(timed)["leak"]) == {"begin", "end"}


def all_leaks(frame):
    """Every column that a finding names as a leak, and those of the same table without them."""
    leaks = {
        name for f in profile_table(frame, "y").findings if f.code == "leak" for name in f.columns
    }
    return leaks, findings(frame.drop(columns=list(leaks))).get("leak", ())


def test_a_category_that_determines_the_target_is_a_leak(table):
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 150, N)
    y = rng.lognormal(size=150)[codes] * np.exp(0.01 * rng.normal(size=N))
    plans = np.array([f"plan {code:03d}" for code in rng.permutation(150)])[codes]
    frame = table.assign(plan=plans, y=y)
    found = [f for f in profile_table(frame, "y").findings if f.code == "leak"]
    assert [f.columns for f in found] == [("plan",)] and "determines the target" in found[0].text
    half = np.where(rng.random(N) < 0.3, rng.permutation(plans), plans)
    assert "leak" not in findings(table.assign(plan=half, y=y))


def test_all_columns_of_a_sum_are_named_also_if_one_is_nearly_a_copy(table):
    """On an earlier version, the copy was removed before sums were looked for."""
    rng = np.random.default_rng(1)
    net = rng.gamma(2.0, 100.0, N).round(2)
    tax = (0.1 * net * np.exp(0.2 * rng.normal(size=N))).round(2)
    assert all_leaks(table.assign(net=net, tax=tax, y=net + tax)) == ({"net", "tax"}, ())
    other = net * rng.choice([0.5, 1.0], N)  # half of the rows are the target itself
    both = table.assign(part=other, rest=net - other, y=net)
    assert all_leaks(both) == ({"part", "rest"}, ())
    months = {f"m{i}": rng.gamma(2.0, 10.0, N).round(2) for i in range(12)}
    year = table.assign(**months, y=np.sum(list(months.values()), axis=0))
    assert all_leaks(year) == (set(months), ())


def test_several_leaks_are_named_at_once_so_that_none_is_left(table):
    rng = np.random.default_rng(1)
    part = rng.uniform(0, 1, N) * table["y"]
    frame = table.assign(
        copy=3 * table["y"], u=part, v=table["y"] - part, band=pd.qcut(table["y"], 4, list("abcd"))
    )
    assert all_leaks(frame) == ({"copy", "u", "v", "band"}, ())


def test_missing_values_that_tell_the_target_are_a_leak(table):
    """A wage is known of those alone who worked."""
    rng = np.random.default_rng(1)
    hours = np.where(rng.random(N) < 0.4, 0.0, rng.gamma(4.0, 10.0, N))
    wage = np.where(hours > 0, rng.gamma(3.0, 5.0, N), np.nan)
    assert all_leaks(table.assign(wage=wage, y=hours)) == ({"wage"}, ())
    some = np.where(rng.random(N) < 0.4, np.nan, wage)
    assert all_leaks(table.assign(wage=some, y=hours)) == (set(), ())


def test_near_copies_are_a_caution_and_no_leak(table):
    rng = np.random.default_rng(2)
    before = table["y"] * np.exp(0.12 * rng.normal(size=N))  # rank correlation 0.98
    found = findings(table.assign(before=before))
    assert found == {"near copy": ("before",)}
    noisy: Any = pd.qcut(table["y"] * np.exp(0.05 * rng.normal(size=N)), 6, list("abcdef"))
    assert findings(table.assign(grade=noisy.astype(str))) == {"near copy": ("grade",)}


def test_a_common_trend_is_no_leak(table):
    rng = np.random.default_rng(3)
    trend = 10 * np.arange(N) + 0.5 * rng.normal(size=(2, N)).cumsum(axis=1)
    for noise in (0.0, 20.0):  # both are sorted, and neither
        gdp, y = trend + noise * rng.normal(size=(2, N))
        found = findings(table.assign(gdp=np.exp(gdp / 2000), y=y))
        assert found == {"near copy": ("gdp",)}


def test_strong_honest_predictors_are_no_leaks(table):
    rng = np.random.default_rng(2)
    before = table["y"] * np.exp(0.1 * rng.normal(size=N))  # rank correlation 0.99
    assert "leak" not in findings(table.assign(before=before))
    grades = pd.qcut(table["y"] * np.exp(0.2 * rng.normal(size=N)), 5, labels=False)
    assert "leak" not in findings(table.assign(grades=grades))
    counts = pd.Series(rng.poisson(80, N))
    assert "leak" not in findings(
        pd.DataFrame({"planned": counts + rng.integers(-6, 7, N), "y": counts})
    )


def test_a_law_of_nature_is_no_leak(data_folder):
    """The resistance of a yacht is nearly a function of its speed, of which there are fourteen."""
    arrays = np.load(data_folder / "yacht.npz")
    frame = pd.DataFrame(dict(zip("abcdef", arrays["X"].T, strict=True))).assign(y=arrays["y"])
    assert "leak" not in findings(frame)


def test_ids_are_named_and_measurements_are_not(table):
    rng = np.random.default_rng(3)
    codes = [f"{code:08x}" for code in rng.integers(0, 2**31, N)]
    running = table.assign(
        row=np.arange(N) + 7,
        order_id=rng.permutation(10**6)[:N],
        code=codes,
        shuffled=rng.permutation(N),
        year=np.arange(N) + 1900,
        population=np.sort(rng.integers(0, 10**7, N)),
    )
    assert findings(running)["id"] == ("row", "order_id", "code", "shuffled")


def test_columns_with_little_information_are_named(table):
    rng = np.random.default_rng(4)
    rare = table["level"].where(np.arange(N) > 2, pd.Series([f"only{i}" for i in range(N)]))
    found = findings(
        table.assign(
            same=5,
            nothing=np.nan,
            sparse=np.where(rng.random(N) < 0.3, rng.normal(size=N), np.nan),
            flag=np.where(rng.random(N) < 0.5, 1.0, np.nan),
            rare=rare,
        )
    )
    assert found["constant"] == ("same", "nothing")
    assert found["mostly missing"][0] == "sparse" and found["rare categories"] == ("rare",)


def test_duplicate_rows_are_counted(table):
    twice = pd.concat([table, table.iloc[:30]])
    found = profile_table(twice, "y")
    assert "30 rows (4.8%)" in {f.code: f.text for f in found.findings}["duplicates"]


def test_times_and_groups_ask_for_another_split_unless_one_is_named(table):
    rng = np.random.default_rng(5)
    days = pd.date_range("2020-01-01", periods=N).strftime("%d.%m.%Y")
    frame = table.assign(day=days, patient_id=rng.integers(0, 40, N))
    found = findings(frame)
    assert found["time column with a random split"] == ("day",)
    assert found["possible groups"] == ("patient_id",)
    assert findings(frame, time_column="day") == findings(frame, group_column="patient_id") == {}


def test_columns_and_target_are_described(table):
    frame = table.assign(x1=table["x1"].where(table.index > 4), day="2020-05-01")
    frame.loc[10:19, "y"] = np.nan
    found = profile_table(frame, "y")
    column = {column.name: column for column in found.columns}
    assert column["x1"].n_missing == 5 and column["x1"].kind is Kind.NUMBER
    assert column["level"].n_distinct == 3 and column["level"].example in "abc"
    assert column["day"].low == "2020-05-01 00:00:00" and column["day"].kind is Kind.TIME
    y = frame["y"].dropna()
    assert found.n_rows == N and found.target.n_rows == N - 10 and found.target.n_missing == 10
    assert found.target.median == y.median() and found.target.skew == pytest.approx(y.skew(), 0.02)
    assert not found.target.is_whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": "text"}, "must be numbers"),
        ({"y": np.nan}, "needs at least 2 numbers, but has 0"),
        ({"y": [1.0] + [np.nan] * (N - 1)}, "needs at least 2 numbers, but has 1"),
        ({"y": True}, "true or false"),
        ({"y": pd.Timestamp("2020-01-01")}, "dates"),
    ],
)
def test_a_target_that_cannot_be_learned_raises_an_error(change, message, table):
    with pytest.raises(InvalidDataError, match=message):
        profile_table(table.assign(**change), "y")


def test_unknown_columns_raise_an_error(table):
    for options in ({"target": "z"}, {"drop": ["z"]}, {"time_column": "z"}, {"group_column": "z"}):
        with pytest.raises(InvalidDataError, match="no column 'z'"):
            profile_table(table, **{"target": "y", **options})
    with pytest.raises(InvalidDataError, match="no column besides the target"):
        profile_table(table, "y", drop=[name for name in table if name != "y"])
    assert findings(table.assign(y=1.0))["constant target"] == ("y",)


def test_a_sample_of_the_rows_is_the_same_every_time():
    frame = make_table(np.random.default_rng(6), 15_000)
    assert profile_table(frame, "y") == profile_table(frame, "y")
