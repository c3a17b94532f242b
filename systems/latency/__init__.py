from systems.latency.calibration import (
    Calibration,
    HeldOut,
    calibrations,
    load_calibration,
)
from systems.latency.catalog import (
    UnknownTable,
    gpus,
    latency_for,
    load_table,
    models,
    read_table,
    table_file,
    tables,
)
from systems.latency.facts import gpu_facts, model_and_tp, model_facts
from systems.latency.listing import gpu_rows, model_rows
from systems.latency.model import ConstantLatency, TableLatency
from systems.latency.roofline import MEASURED, RooflineLatency, factor_for
from systems.latency.scaled import SCALES, ScaledLatency, ScaledModel, ServedModel
from systems.latency.transfer import Transfer, host_blocks, transfer_for

__all__ = [
    "MEASURED",
    "SCALES",
    "Calibration",
    "ConstantLatency",
    "HeldOut",
    "RooflineLatency",
    "ScaledLatency",
    "ScaledModel",
    "ServedModel",
    "TableLatency",
    "Transfer",
    "UnknownTable",
    "calibrations",
    "factor_for",
    "gpu_facts",
    "gpu_rows",
    "gpus",
    "host_blocks",
    "latency_for",
    "load_calibration",
    "load_table",
    "model_and_tp",
    "model_facts",
    "model_rows",
    "models",
    "read_table",
    "table_file",
    "tables",
    "transfer_for",
]
