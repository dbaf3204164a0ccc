"""Times `img2gray` and what else turns an image gray, and draws it.

    python benchmarks/compare.py                  # the GPU if there is one, else the CPU
    python benchmarks/compare.py --device cpu --sizes 1080p,8192 --only img2gray,opencv

Bandwidth counts the bytes that have to move: the image read once, the gray image written once. The
line to reach is a large copy's, measured in the same run. Inputs rotate through more memory than
any cache holds. On a GPU the calls are replayed from a CUDA graph, so that the time is the
device's, and a second column has what a call costs the host. On a CPU every large result is fresh
memory, with page faults to take, so there is a second line: a copy into a new tensor.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import re
import statistics
import time
from pathlib import Path
from typing import Any, Callable

import torch

HERE = Path(__file__).parent
REPO_ID = "kernelgen/img2gray"
os.environ.setdefault("LOCAL_KERNELS", f"{REPO_ID}={HERE.parent / 'build'}")

# Name: images, height, width.
SIZES = {
    "64": (1, 64, 64),
    "256": (1, 256, 256),
    "1024": (1, 1024, 1024),
    "1080p": (1, 1080, 1920),
    "2048": (1, 2048, 2048),
    "4096": (1, 4096, 4096),
    "8192": (1, 8192, 8192),
    "16384": (1, 16384, 16384),
    "256x224": (256, 224, 224),
    "256x225": (256, 225, 225),
    "32x1080p": (32, 1080, 1920),
}
DTYPES = {
    "uint8": torch.uint8,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}
LAYOUTS = ("planar", "channels_last")
COPY_BYTES = 1 << 30
ROTATE_BYTES = 1 << 28  # more than the caches of any GPU or CPU that this is run on

Call = Callable[[torch.Tensor], Any]


# --- What is compared -----------------------------------------------------------------------------


def eager(image: torch.Tensor) -> torch.Tensor:
    """Plain arithmetic on tensors, with img2gray's rounding."""
    gray: torch.Tensor
    if image.dtype == torch.uint8:
        red, green, blue = image.to(torch.int32).split(1, dim=-3)
        gray = ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).to(torch.uint8)
    else:
        red, green, blue = image.split(1, dim=-3)
        gray = 0.299 * red + 0.587 * green + 0.114 * blue
    return gray


def function(module: str, name: str) -> Call:
    """A function of a package that may not be installed."""
    call: Call = getattr(importlib.import_module(module), name)
    return call


def kernel(image: torch.Tensor) -> Call:
    """This kernel."""
    import kernels

    call: Call = kernels.get_kernel(REPO_ID, version=1).img2gray
    return call


def compiled(image: torch.Tensor) -> Call:
    """`eager` under torch.compile, for this shape alone."""
    torch.compiler.reset()
    call: Call = torch.compile(eager, fullgraph=True, dynamic=False)
    return call


def torchvision_v1(image: torch.Tensor) -> Call:
    """The functional of torchvision's first API."""
    return function("torchvision.transforms.functional", "rgb_to_grayscale")


def torchvision_v2(image: torch.Tensor) -> Call:
    """The functional of torchvision's second API."""
    return function("torchvision.transforms.v2.functional", "rgb_to_grayscale")


def kornia(image: torch.Tensor) -> Call:
    """Kornia, for floats only."""
    if image.dtype == torch.uint8:
        raise NotImplementedError("floats")
    return function("kornia.color", "rgb_to_grayscale")


def opencv(image: torch.Tensor) -> Call:
    """OpenCV, on the CPU: channels-last single images, uint8 or float32."""
    if image.device.type != "cpu" or image.dim() != 4 or image.shape[0] != 1:
        raise NotImplementedError("single images on the CPU")
    if image.stride(1) != 1 or image.dtype not in (torch.uint8, torch.float32):
        raise NotImplementedError("channels-last, uint8 or float32")
    cv2 = importlib.import_module("cv2")
    cv2.setNumThreads(torch.get_num_threads())
    return lambda image: cv2.cvtColor(image[0].permute(1, 2, 0).numpy(), cv2.COLOR_RGB2GRAY)


def naive(image: torch.Tensor) -> Call:
    """A thread for each pixel on a two-dimensional grid, for uint8 and float32."""
    types = {torch.uint8: "unsigned char", torch.float32: "float"}
    if image.device.type != "cuda" or image.dtype not in types:
        raise NotImplementedError("CUDA, uint8 or float32")
    images, _, height, width = image.shape
    planar = image.is_contiguous()
    source = (
        f"#define T {types[image.dtype]}\n"
        f"#define CHANNEL {'pixels' if planar else 1}\n"
        f"#define COLUMN {1 if planar else 3}\n"
    )
    launch = torch.cuda._compile_kernel(source + (HERE / "naive.cu").read_text(), "naive")
    grid = ((width + 15) // 16, (height + 15) // 16, images)

    def call(image: torch.Tensor) -> torch.Tensor:
        gray = image.new_empty((images, 1, height, width))
        launch(grid, (16, 16, 1), (image, gray, width, height))
        return gray

    return call


CONTENDERS: dict[str, Callable[[torch.Tensor], Call]] = {
    "img2gray": kernel,
    "torch.compile": compiled,
    "eager": lambda image: eager,
    "torchvision v1": torchvision_v1,
    "torchvision v2": torchvision_v2,
    "kornia": kornia,
    "opencv": opencv,
    "naive 2-D grid": naive,
}


# --- Timing ---------------------------------------------------------------------------------------


def device_seconds(call: Call, inputs: list[torch.Tensor], graph: bool = True) -> float:
    """Seconds of one call on the inputs' device: the median over repetitions."""
    for image in inputs[:3]:
        call(image)
    if inputs[0].device.type == "cpu":
        return cpu_seconds(call, inputs)
    rounds = max(1, 20 // len(inputs))

    def run() -> None:
        for _ in range(rounds):
            for image in inputs:
                call(image)

    torch.cuda.synchronize()
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            run()
        run = captured.replay
    times: list[float] = []
    for _ in range(9):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(float(begin.elapsed_time(end)) / 1e3 / (rounds * len(inputs)))
    return statistics.median(times[2:])


def cpu_seconds(call: Call, inputs: list[torch.Tensor]) -> float:
    """The same on the CPU, for half a second or 5 rounds at least."""
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 5 * len(inputs) or time.perf_counter() - start < 0.5:
        for image in inputs:
            begin = time.perf_counter()
            call(image)
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def host_seconds(call: Call, image: torch.Tensor) -> float:
    """What a call costs the host, which does not wait for the device."""
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(100):
            call(image)
        times.append((time.perf_counter() - begin) / 100)
        torch.cuda.synchronize()
    return statistics.median(times)


def copy_bandwidth(device: str) -> float:
    """Bytes read and written per second by a large copy."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device).random_(0, 256)
    targets = [torch.zeros_like(source) for _ in range(2)]
    # Outside of a graph: as a node of one, a copy runs at two thirds of this speed.
    seconds = device_seconds(lambda target: target.copy_(source), targets, graph=False)
    return 2 * COPY_BYTES / seconds


def clone_bandwidth() -> float:
    """The same on the CPU by a copy into a new tensor."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8).random_(0, 256)
    return 2 * COPY_BYTES / cpu_seconds(torch.clone, [source])


def launch_seconds() -> float:
    """An empty kernel's share of a CUDA graph."""
    source = (
        "#define T int\n#define CHANNEL 1\n#define COLUMN 3\n" + (HERE / "naive.cu").read_text()
    )
    launch = torch.cuda._compile_kernel(source, "nothing")
    image = torch.empty(1, device="cuda")
    return device_seconds(lambda image: launch((1, 1, 1), (32, 1, 1), ()), [image] * 500)


def make_inputs(size: str, dtype: torch.dtype, layout: str, device: str) -> list[torch.Tensor]:
    """Random images that together fill more than the caches."""
    images, height, width = SIZES[size]
    shape = (images, 3, height, width)
    count = 3 * images * height * width * dtype.itemsize
    memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format

    def image() -> torch.Tensor:
        if dtype == torch.uint8:
            tensor = torch.empty(shape, dtype=dtype, device=device).random_(0, 256)
        else:
            tensor = torch.empty(shape, dtype=dtype, device=device).uniform_()
        return tensor.contiguous(memory_format=memory_format)

    return [image() for _ in range(min(512, max(2, -(-ROTATE_BYTES // count))))]


def measure(
    size: str, dtype: str, layout: str, device: str, names: list[str]
) -> list[dict[str, Any]]:
    """One row for each contender that takes this case."""
    inputs = make_inputs(size, DTYPES[dtype], layout, device)
    image = inputs[0]
    moved = image.numel() * image.element_size() * 4 // 3
    rows: list[dict[str, Any]] = []
    for name in names:
        row: dict[str, Any] = {"size": size, "dtype": dtype, "layout": layout, "name": name}
        try:
            call = CONTENDERS[name](image)
            seconds = device_seconds(call, inputs)
        except (ImportError, NotImplementedError):
            continue
        except Exception as error:  # a contender that fails is a result, too
            rows.append({**row, "error": f"{type(error).__name__}: {error}".splitlines()[0]})
            continue
        row |= {"microseconds": seconds * 1e6, "gigabytes_per_second": moved / seconds / 1e9}
        if device == "cuda":
            row["host_microseconds"] = host_seconds(call, image) * 1e6
        rows.append(row)
    return rows


# --- Results --------------------------------------------------------------------------------------


def machine(device: str) -> dict[str, str]:
    """What a reader has to know about where the numbers come from."""
    versions = {}
    for package in ("torch", "triton", "torchvision", "kornia", "cv2"):
        try:
            versions[package] = str(__import__(package).__version__)
        except Exception:  # some packages fail in their own ways when a part of them is missing
            continue
    name = torch.cuda.get_device_name() if device == "cuda" else cpu_name()
    about = {"device": name, "python": platform.python_version(), **versions}
    about["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    if device == "cuda":
        about["cuda"] = str(torch.version.cuda)
    else:
        about["threads"] = str(torch.get_num_threads())
    return about


def cpu_name() -> str:
    """The processor's name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    names = [
        line.split(":")[1].strip() for line in info.read_text().splitlines() if "model name" in line
    ]
    return names[0] if names else platform.processor()


def table(result: dict[str, Any]) -> str:
    """Markdown: a line for each case and contender."""
    copy = result["copy_gigabytes_per_second"]
    lines = [f"Large copy: {copy:.0f} GB/s."]
    if "launch_microseconds" in result:
        lines[0] += f" Empty kernel: {result['launch_microseconds']:.2f} us."
    if "clone_gigabytes_per_second" in result:
        lines[0] += f" Into a new tensor: {result['clone_gigabytes_per_second']:.0f} GB/s."
    lines += ["", "| size | dtype | layout | contender | us | GB/s | of copy | host us |"]
    lines += ["| --- | --- | --- | --- | ---: | ---: | ---: | ---: |"]
    for row in result["rows"]:
        case = f"| {row['size']} | {row['dtype']} | {row['layout']} | {row['name']} |"
        if "error" in row:
            lines.append(f"{case} {row['error']} | | | |")
            continue
        speed = row["gigabytes_per_second"]
        host = f"{row['host_microseconds']:.1f}" if "host_microseconds" in row else ""
        times = f"{row['microseconds']:.1f} | {speed:.0f} | {speed / copy:.0%} | {host} |"
        lines.append(f"{case} {times}")
    return "\n".join(lines)


def draw(result: dict[str, Any], path: Path) -> None:
    """A panel for each dtype and layout: bandwidth over size, with the copy's line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sizes = [size for size in SIZES if any(row["size"] == size for row in result["rows"])]
    dtypes = [dtype for dtype in DTYPES if any(row["dtype"] == dtype for row in result["rows"])]
    figure, axes = pyplot.subplots(
        2, len(dtypes), figsize=(4.2 * len(dtypes), 7.5), sharey=True, squeeze=False
    )
    colours = dict(zip(CONTENDERS, (f"C{i}" for i in range(len(CONTENDERS)))))
    for axis, layout in zip(axes, LAYOUTS):
        for panel, dtype in zip(axis, dtypes):
            panel.axhline(
                result["copy_gigabytes_per_second"],
                color="black",
                linestyle="--",
                label="large copy",
            )
            if "clone_gigabytes_per_second" in result:
                panel.axhline(
                    result["clone_gigabytes_per_second"],
                    color="black",
                    linestyle=":",
                    label="copy into a new tensor",
                )
            for name, colour in colours.items():
                points = [
                    (sizes.index(row["size"]), row["gigabytes_per_second"])
                    for row in result["rows"]
                    if (row["dtype"], row["layout"], row["name"]) == (dtype, layout, name)
                    and "error" not in row
                ]
                if points:
                    style = (
                        {"linewidth": 2.5, "zorder": 3} if name == "img2gray" else {"alpha": 0.8}
                    )
                    panel.plot(
                        *zip(*points), marker="o", markersize=4, color=colour, label=name, **style
                    )
            panel.set_title(f"{dtype}, {layout.replace('_', '-')}")
            panel.set_xticks(range(len(sizes)), sizes, rotation=60)
            panel.grid(alpha=0.3)
            panel.set_ylim(bottom=0)
        axis[0].set_ylabel("GB/s (image read + gray written)")
    handles: dict[str, Any] = {}
    for panel in axes.flat:
        handles |= dict(zip(*reversed(panel.get_legend_handles_labels())))
    figure.legend(handles.values(), handles, loc="lower center", ncols=len(handles), frameon=False)
    about = result["machine"]
    figure.suptitle(f"RGB to gray on {about['device']}, torch {about['torch']}, {about['date']}")
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(path)


def main() -> None:
    """Measures, prints the table, and writes it with the plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument(
        "--only", default=",".join(CONTENDERS), help="contenders, separated by commas"
    )
    parser.add_argument(
        "--compile-sizes",
        default="64,1080p,8192,32x1080p",
        help="sizes that torch.compile is run on",
    )
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for the results")
    options = parser.parse_args()

    torch.manual_seed(0)
    result: dict[str, Any] = {"machine": machine(options.device)}
    result["copy_gigabytes_per_second"] = copy_bandwidth(options.device) / 1e9
    if options.device == "cuda":
        result["launch_microseconds"] = launch_seconds() * 1e6
    else:
        result["clone_gigabytes_per_second"] = clone_bandwidth() / 1e9
    result["rows"] = []
    for size in options.sizes.split(","):
        names = [name for name in CONTENDERS if name in options.only.split(",")]
        if size not in options.compile_sizes.split(","):
            names = [name for name in names if name != "torch.compile"]
        for dtype in options.dtypes.split(","):
            for layout in LAYOUTS:
                result["rows"] += measure(size, dtype, layout, options.device, names)
    print(table(result))

    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / re.sub("[^a-z0-9]+", "-", result["machine"]["device"].lower()).strip("-")
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    stem.with_suffix(".md").write_text(f"{json.dumps(result['machine'])}\n\n{table(result)}\n")
    try:
        draw(result, stem.with_suffix(".svg"))
    except ImportError:
        print("No plot: matplotlib is not installed.")


if __name__ == "__main__":
    main()
