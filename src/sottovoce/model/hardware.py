"""The hardware options of training: device, precision, compilation, threads. Reading them does not load torch."""

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from sottovoce.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from sottovoce.model.encoder import Encoder


class Hardware(BaseModel):
    """Where the computation runs. These options change results only by rounding."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda where a CUDA device exists")
    precision: Literal["float32", "tf32", "bfloat16"] = Field(
        "float32", description="of the matrix products in training; tf32 and bfloat16 need cuda"
    )
    compile: bool = Field(False, description="compile the encoder's blocks with torch.compile; needs cuda")
    threads_per_worker: int = Field(1, ge=1, le=1024, description="CPU threads of every process")

    def open(self) -> "torch.device":
        """Return the device to train on; raise ConfigError where this machine cannot meet the options."""
        import torch  # noqa: PLC0415 - reading a preset stays fast

        cuda = torch.cuda.is_available()
        if self.device == "cuda" and not cuda:
            raise ConfigError("hardware.device=cuda, but this machine has no CUDA device. Use cpu or auto.")
        if cuda and self.device != "cpu":
            return torch.device("cuda", torch.cuda.current_device())
        lower = self.precision != "float32"
        for option, is_set in ((f"precision={self.precision}", lower), ("compile=true", self.compile)):
            if is_set:
                raise ConfigError(
                    f"hardware.{option} needs a CUDA device. Leave it out to train on the CPU in float32."
                )
        return torch.device("cpu")

    def processes(self, workers: int) -> int:
        """Return the number of worker processes: at most one for each GPU, and the requested number on a CPU."""
        import torch  # noqa: PLC0415 - reading a preset stays fast

        return min(workers, torch.cuda.device_count()) if self.open().type == "cuda" else workers

    def speed_up_(self, encoder: "Encoder") -> None:
        """Set the encoder's precision and compile its units, each on its own, for any batch size and length."""
        import torch  # noqa: PLC0415 - reading a preset stays fast

        torch.backends.cuda.matmul.allow_tf32 = self.precision == "tf32"  # of this process
        if self.precision == "bfloat16":
            encoder.training_precision = torch.bfloat16
        if self.compile:
            for unit in encoder.units_to_compile():
                unit.compile(dynamic=True)
