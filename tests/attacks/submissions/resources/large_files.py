"""Makes files that are large without being written: truncated to length, reserved, with holes."""
# loses: scale.values
import errno
import os


def scale(x, k):
    ways = [
        lambda f: os.ftruncate(f, 1 << 40),
        lambda f: os.posix_fallocate(f, 0, 1 << 30),
        lambda f: os.pwrite(f, b"x", 1 << 40),
        lambda f: (os.lseek(f, 1 << 40, os.SEEK_SET), os.write(f, b"x")),
        lambda f: os.truncate("large", 1 << 40),
        lambda f: os.copy_file_range(f, f, 1 << 20, 0, 1 << 30),
        lambda f: os.sendfile(f, f, 0, 1 << 30),
    ]
    descriptors, said = [1, 2], []
    try:
        descriptors.append(os.open("large", os.O_RDWR | os.O_CREAT))
    except OSError as error:
        said.append(error.strerror)
    for descriptor in descriptors:
        for number, way in enumerate(ways):
            try:
                way(descriptor)
            except OSError as error:
                said.append(error.strerror)
            else:
                reached(f"way {number} on {descriptor}")
    raise OSError(errno.EFBIG, f"File too large: {said}")
