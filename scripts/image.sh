#!/bin/sh
# Fills a Debian image with vim-train, and with the CUDA 12 compiler and headers that its kernels need at run time.
# scripts/apptainer.def and scripts/Dockerfile call it as root, inside the image:
#
#   scripts/image.sh DIST        DIST: a folder with one archive of scripts/release.sh, vim-train-*-cuda.tar.xz
set -eu
dist=${1:?usage: image.sh DIST}
set -- "$dist"/vim-train-*-cuda.tar.xz
if [ $# -ne 1 ] || [ ! -f "$1" ]; then
    echo "image.sh: $dist must have exactly one vim-train-*-cuda.tar.xz: run scripts/release.sh --only cuda" >&2
    exit 1
fi

apt-get update
apt-get install -y --no-install-recommends ca-certificates python3 python3-pip xz-utils

mkdir -p /opt/vim-train
tar --extract --xz --file "$1" --directory /opt/vim-train --strip-components=1 --no-same-owner
ln -sf /opt/vim-train/vim-train /usr/local/bin/vim-train
vim-train --version

# Drivers from 550 on load what NVRTC 12.4 compiles. The wheels' folders become one toolkit, where vim-train looks.
wheels=$(mktemp -d)
python3 -m pip install --no-cache-dir --target "$wheels" \
    'nvidia-cuda-nvrtc-cu12==12.4.*' 'nvidia-cuda-runtime-cu12==12.4.*' \
    'nvidia-cuda-cccl-cu12==12.4.*' 'nvidia-cuda-nvcc-cu12==12.4.*'
mkdir -p /opt/cuda/include /opt/cuda/lib64
for wheel in cuda_runtime cuda_nvcc cuda_cccl; do
    cp -a "$wheels/nvidia/$wheel/include/." /opt/cuda/include/
done
cp -a "$wheels/nvidia/cuda_nvrtc/lib/." /opt/cuda/lib64/

rm -rf "$wheels"
apt-get purge -y --auto-remove python3-pip xz-utils
rm -rf /var/lib/apt/lists/*
