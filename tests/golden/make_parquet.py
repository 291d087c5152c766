#!/usr/bin/env python3
"""Makes Parquet files and the JSON lines that they hold: make_parquet.py FOLDER writes FOLDER/parquet/NAME.parquet and .jsonl.

Needs `pip install pyarrow duckdb polars fastparquet` (the files in git: pyarrow 26.0.1, duckdb 2.0.1, polars 2.1.0,
fastparquet 2026.9.0). The lines come from what pyarrow reads back, by the rules of src/nought/io/parquet_source.h.
"""
import argparse
import base64
import datetime
import decimal
import json
import math
import pathlib
import uuid

import duckdb
import fastparquet
import numpy
import polars
import pyarrow
import pyarrow.parquet

UTC = datetime.timezone.utc
WORDS = "the quick brown fox jumps over a lazy dog caf\u00e9 \u6771\u4eac \U0001f600 \"quoted\" back\\slash tab\t line\n".split(" ")


def text(i, length):
    return " ".join(WORDS[(i * 7 + k * (i % 5 + 1)) % len(WORDS)] for k in range(length))


def conversations(rows):
    """As data sets of conversations on the hub have them."""
    message = pyarrow.struct([("content", pyarrow.string()), ("role", pyarrow.string())])
    schema = pyarrow.schema([("id", pyarrow.int64()), ("source", pyarrow.string()), ("messages", pyarrow.list_(message)),
                             ("score", pyarrow.float32()), ("tags", pyarrow.list_(pyarrow.string()))])
    table = [{"id": i, "source": None if i % 11 == 3 else ["web", "books", "code"][i % 3],
              "messages": None if i == 5 else [{"content": None if i == 8 else text(i + k, 3 + (i + k) % 9), "role": ["user", "assistant"][k % 2]}
                                               for k in range(i % 4 * 2)],
              "score": None if i % 4 == 1 else i / 7, "tags": None if i % 5 == 0 else [None if k == 1 else f"t{k}" for k in range(i % 3)]}
             for i in range(rows)]
    return pyarrow.Table.from_pylist(table, schema)


def scalars(rows):
    moment = datetime.datetime(2024, 2, 29, 23, 59, 58, 123456)
    columns = {
        "bool": (pyarrow.bool_(), lambda i: i % 3 == 0), "i8": (pyarrow.int8(), lambda i: -i), "u8": (pyarrow.uint8(), lambda i: 255 - i),
        "u32": (pyarrow.uint32(), lambda i: 2**32 - 1 - i), "u64": (pyarrow.uint64(), lambda i: 2**64 - 1 - i),
        "i64": (pyarrow.int64(), lambda i: -2**63 + i * 1000003), "f16": (pyarrow.float16(), lambda i: numpy.float16(i / 8)),
        "f32": (pyarrow.float32(), lambda i: [0.1, 1e30, -0.0, math.nan, math.inf][i % 5]), "f64": (pyarrow.float64(), lambda i: [0.1, 1e300, 5.0, math.nan, -math.inf][i % 5]),
        "date": (pyarrow.date32(), lambda i: datetime.date(1969, 12, 31) + datetime.timedelta(days=i * 3)),
        "ms": (pyarrow.timestamp("ms"), lambda i: moment.replace(microsecond=123000) - datetime.timedelta(days=i * 9999)),
        "us": (pyarrow.timestamp("us", tz="UTC"), lambda i: moment.replace(tzinfo=UTC, microsecond=i)),
        "time": (pyarrow.time64("us"), lambda i: datetime.time(i % 24, 5, 9, i * 10)),
        "d9": (pyarrow.decimal128(9, 2), lambda i: decimal.Decimal(i * 37 - 100).scaleb(-2)), "d38": (pyarrow.decimal128(38, 10), lambda i: decimal.Decimal((-1) ** i * (10**30 + i)).scaleb(-10)),
        "bytes": (pyarrow.binary(), lambda i: bytes([255, i, 0][: i % 4])), "plain": (pyarrow.binary(), lambda i: text(i, 2).encode()),
        "fixed": (pyarrow.binary(5), lambda i: bytes([i, 1, 2, 3, 200])), "none": (pyarrow.null(), lambda i: None),
    }
    return pyarrow.Table.from_pydict(
        {name: pyarrow.array([None if (i * 13 + k) % 17 == 0 else make(i) for i in range(rows)], kind) for k, (name, (kind, make)) in enumerate(columns.items())})


def nested(rows):
    deep = pyarrow.list_(pyarrow.list_(pyarrow.struct([("a", pyarrow.int32()), ("b", pyarrow.list_(pyarrow.string()))])))
    schema = pyarrow.schema([("deep", deep), ("map", pyarrow.map_(pyarrow.string(), pyarrow.list_(pyarrow.int64()))), ("counts", pyarrow.map_(pyarrow.int32(), pyarrow.float64())),
                             ("pair", pyarrow.struct([("x", pyarrow.int32()), ("y", pyarrow.struct([("z", pyarrow.string())]))])),
                             pyarrow.field("must", pyarrow.list_(pyarrow.field("element", pyarrow.int32(), nullable=False)), nullable=False)])

    def inner(i, k):
        return None if (i + k) % 7 == 2 else {"a": None if k == 1 else i, "b": None if k == 2 else ["x"] * (k % 2) + [None] * (i % 2)}
    table = [{"deep": None if i == 3 else [None if (i + k) % 5 == 4 else [inner(i, m) for m in range((i + k) % 4)] for k in range(i % 4)],
              "map": None if i % 6 == 5 else {f"k\u00e9y {k}\"": None if k == 1 else list(range(k)) for k in range(i % 4)},
              "counts": {k: None if k == 2 else k / 4 for k in range(i % 3)}, "pair": None if i % 4 == 0 else {"x": i, "y": None if i % 3 == 0 else {"z": None if i % 5 == 0 else text(i, 1)}},
              "must": list(range(i % 3))} for i in range(rows)]
    return pyarrow.Table.from_pylist(table, schema)


def pages(rows):
    """Columns for each way to pack values."""
    return pyarrow.table({"sorted": [f"prefix/{i // 10:04}/{'x' * (i % 7)}" for i in range(rows)], "lengths": [text(i, i % 12) for i in range(rows)],
                          "steps": pyarrow.array([None if i % 9 == 4 else (i * i * 977) % 100003 - (10**17 if i % 31 == 0 else 0) for i in range(rows)], pyarrow.int64()),
                          "small": pyarrow.array([-i for i in range(rows)], pyarrow.int32()), "flags": [i % 3 == 0 for i in range(rows)], "word": [WORDS[i % 3] for i in range(rows)],
                          "apart": pyarrow.array([i / 8 for i in range(rows)], pyarrow.float32())})


def as_json(value, kind):
    """A value as our JSON has it."""
    if value is None:
        return None
    if pyarrow.types.is_map(kind):
        return {k if isinstance(k, str) else str(k): as_json(v, kind.item_type) for k, v in (value.items() if isinstance(value, dict) else value)}
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return [as_json(each, kind.value_type) for each in value]
    if pyarrow.types.is_struct(kind):
        return {field.name: as_json(value[field.name], field.type) for field in kind}
    if isinstance(value, (float, numpy.floating)):
        short = float(str(numpy.float32(value))) if pyarrow.types.is_float32(kind) else float(value)
        return short if math.isfinite(short) else None
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, bytes):
        try:
            return base64.b64encode(value).decode() if pyarrow.types.is_fixed_size_binary(kind) else value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):
        plain = value.replace(tzinfo=None)
        unit = kind.unit
        digits = "" if plain.microsecond == 0 else f".{plain.microsecond // 1000:03}" if unit == "ms" else f".{plain.microsecond:06}" + ("000" if unit == "ns" else "")
        return plain.strftime("%Y-%m-%dT%H:%M:%S") + digits + ("Z" if value.tzinfo else "")
    if isinstance(value, datetime.time):
        return value.strftime("%H:%M:%S") + (f".{value.microsecond:06}" if value.microsecond else "")
    return value.isoformat() if isinstance(value, datetime.date) else value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder / "parquet"
    folder.mkdir(parents=True, exist_ok=True)

    def write(name, table, **options):
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet", store_schema=False, **options)

    write("conversations_snappy", conversations(40), row_group_size=17, data_page_size=64, write_batch_size=4)
    write("conversations_none", conversations(12), compression="none", use_dictionary=False, write_statistics=False)
    write("conversations_old_lists", conversations(12), compression="gzip", use_compliant_nested_type=False, version="1.0")
    write("scalars_gzip", scalars(23), compression="gzip", row_group_size=9)
    write("scalars_zstd_v2", scalars(23), compression="zstd", data_page_version="2.0", use_dictionary=False)
    write("nested_snappy", nested(31), row_group_size=13, data_page_size=48, write_batch_size=2)
    write("nested_v2", nested(31), data_page_version="2.0", compression="none", data_page_size=48, write_batch_size=3)
    encodings = {"sorted": "DELTA_BYTE_ARRAY", "lengths": "DELTA_LENGTH_BYTE_ARRAY", "steps": "DELTA_BINARY_PACKED", "small": "DELTA_BINARY_PACKED", "flags": "RLE", "word": "DELTA_BYTE_ARRAY", "apart": "BYTE_STREAM_SPLIT"}
    write("packed", pages(150), use_dictionary=False, column_encoding=encodings, data_page_version="2.0", compression="zstd")
    write("int96", pyarrow.table({"at": pyarrow.array([datetime.datetime(1970 + 9 * i, 1, 1 + i, i, 0, 7, i) for i in range(9)] + [None], pyarrow.timestamp("ns"))}),
          use_deprecated_int96_timestamps=True)
    write("refused_brotli", conversations(2), compression="brotli")
    write("empty", conversations(0))
    source = conversations(25)
    duckdb.sql("COPY source TO '%s' (FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE 10)" % (folder / "duckdb.parquet"))
    polars.from_arrow(nested(9).select(["deep", "pair", "must"])).write_parquet(folder / "polars.parquet", compression="zstd", statistics=False)
    fastparquet.write(str(folder / "fastparquet.parquet"), conversations(25).select(["id", "source", "score"]).to_pandas(), compression="SNAPPY")
    for file in sorted(set(folder.glob("*.parquet")) - set(folder.glob("refused_*"))):
        table = pyarrow.parquet.read_table(file)
        with open(file.with_suffix(".jsonl"), "w", encoding="utf-8") as lines:
            for row in table.to_pylist(maps_as_pydicts="strict"):
                lines.write(json.dumps({field.name: as_json(row[field.name], field.type) for field in table.schema}, ensure_ascii=False) + "\n")


main()
