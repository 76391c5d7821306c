# An image to grade in on a GPU: Python, libseccomp, PyTorch with CUDA, a C compiler for Triton, Softmark. No
# course is in it: mount yours.
#
#     docker build -f ci/gpu.Dockerfile -t softmark-gpu .
#     docker run --rm --gpus all --network none -v "$PWD:/course:ro" -v "$PWD/out:/out" softmark-gpu \
#         softmark grade /course/submissions --topic 08_gpu_attention --course /course --out /out --device cuda
#
# Versions are those of constraints.txt. CUDA comes with PyTorch's build, the driver from the host: cu126 is
# for drivers of CUDA 12 and GPUs up to the H200 (T4, A100, L4, H100). For newer ones, --build-arg CUDA=cu130.
# To pin the base for good, put its digest behind the name: docker buildx imagetools inspect NAME shows it.
FROM python:3.12-slim-bookworm

ARG CUDA=cu126
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PYTHONDONTWRITEBYTECODE=1

RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev libseccomp2 \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY constraints.txt ./
RUN python -m pip install --no-deps -c constraints.txt torch --index-url "https://download.pytorch.org/whl/${CUDA}"
COPY pyproject.toml README.md LICENSE ./
COPY autograder/softmark autograder/softmark
RUN python -m pip install -c constraints.txt ".[torch]"

WORKDIR /course
CMD ["softmark", "doctor"]
