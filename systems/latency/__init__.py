from systems.latency.catalog import UnknownTable, gpus, load_table, models, read_table, tables
from systems.latency.model import ConstantLatency, ScaledLatency, TableLatency

__all__ = [
    "ConstantLatency",
    "ScaledLatency",
    "TableLatency",
    "UnknownTable",
    "gpus",
    "load_table",
    "models",
    "read_table",
    "tables",
]
