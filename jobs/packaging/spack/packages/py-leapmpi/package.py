"""leapmpi for Spack; README.md beside this folder says how to use it."""

from spack.package import *


class PyLeapmpi(PythonPackage):
    """Distributed training of graph neural networks where the features are, over MPI."""

    homepage = "https://pypi.org/project/leapmpi"

    license("BSD-3-Clause")

    # No archive is published yet: `spack develop --path CHECKOUT py-leapmpi@0.1.0` builds a checkout.
    version("0.1.0")

    variant("export", default=False, description="Export of weights as safetensors")
    variant("parquet", default=False, description="Tables in Parquet")
    variant("pyg", default=False, description="Layers of PyTorch Geometric in models of your own")
    variant("cuda", default=False, description="Train on GPUs")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools", type="build")
    depends_on("py-greenlet@3.0:", type=("build", "run"))
    depends_on("py-h5py@3.10:", type=("build", "run"))
    depends_on("py-mpi4py@4.0:", type=("build", "run"))
    depends_on("py-numba@0.59:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-pymetis@2023.1:", type=("build", "run"))
    depends_on("py-torch@2.3:", type=("build", "run"))
    depends_on("py-tqdm@4.60:", type=("build", "run"))
    depends_on("py-torch+cuda", when="+cuda", type=("build", "run"))
    depends_on("py-torch~cuda", when="~cuda", type=("build", "run"))
    depends_on("py-safetensors@0.4:", when="+export", type=("build", "run"))
    depends_on("py-pyarrow@14:+parquet", when="+parquet", type=("build", "run"))
    depends_on("py-torch-geometric@2.5:2", when="+pyg", type=("build", "run"))

    import_modules = ["leapmpi", "data_prep"]

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_program(self):
        """Check that the program starts and knows its MPI."""
        leapmpi = Executable(join_path(self.prefix.bin, "leapmpi"))
        leapmpi("--version")
