# The part of lock.py that answers what the filter reports, compiled when it is needed.
name = {int(n): c for c, n in (x.split("=") for x in calls.split(","))}
sinks = sinks.split(",")
sockets = sockets.split(",") if sockets else []
inet = int(inet)
seen = set()
forks = []


def plain(b):
  return b"".join(b"%%%02X" % c if c < 32 or c == 37 or c == 127 else bytes([c]) for c in b[:300])


def hit(kind, what):
  if (kind, what) not in seen:
    seen.add((kind, what))
    if len(seen) <= 16:
      control("h", kind, plain(what))


def read(path):
  try:
    with open(path, "rb", 0) as f:
      return f.read()
  except OSError:
    return b""


def field(path, key):
  for line in read(path).split(bytes([10])):
    if line.startswith(key):
      return line[len(key):].strip()
  return b""


def integer(b, base=10):
  try:
    return int(b, base)
  except ValueError:
    return 0


def link(path):
  try:
    return os.readlink(os.fsencode(path))
  except OSError:
    return b""


def everyone():
  # Number, parent and group of each process.
  out = []
  for p in os.listdir("/proc"):
    if p.isdigit():
      f = read("/proc/" + p + "/stat").rpartition(b")")[2].split()
      if len(f) > 2:
        out.append((int(p), int(f[1]), int(f[2])))
  return out


def ours(p):
  for _ in range(1000):
    parent = integer(field("/proc/%d/status" % p, b"PPid:"))
    if parent == os.getpid():
      return True
    if not parent:
      return False
    p = parent
  return False


def answer(id, value=0, error=0, flags=0):
  call(IOCTL, listener, 0xc0182101, pack(8, id, 8, value, 4, -error, 4, flags))


def memory_of(pid, at, most):
  # To the end of the page: the next one may not be there.
  out = b""
  try:
    with open("/proc/%d/mem" % pid, "rb", 0) as m:
      while len(out) < most:
        m.seek(at + len(out))
        b = m.read(min(most - len(out), 4096 - (at + len(out)) % 4096))
        if not b:
          break
        out += b
        if most == 4096 and 0 in b:
          break
  except (OSError, OverflowError, ValueError):
    pass
  return out


def text(pid, at):
  out = memory_of(pid, at, 4096)
  return out[:out.index(0)] if 0 in out else None


def int32(n):
  return (n & 0xffffffff ^ 1 << 31) - (1 << 31)


def absolute(pid, at, p):
  if p.startswith(b"/"):
    return p
  return link("/proc/%d/%s" % (pid, "cwd" if at == -100 else "fd/%d" % at)) + b"/" + p


place = {}
for names, at, path in (
  ("unlinkat mkdirat mknodat fchmodat fchmodat2 fchownat utimensat futimesat renameat renameat2", 0, 1),
  ("truncate unlink rename mkdir rmdir mknod chmod chown lchown utime utimes setxattr lsetxattr removexattr lremovexattr creat", -1, 0),
  ("link symlink", -1, 1), ("symlinkat", 1, 2), ("linkat", 2, 3), ("fchmod fchown fsetxattr fremovexattr", 0, -1),
):
  for n in names.split():
    place[n] = at, path


def about(pid, what, args):
  if what not in place:
    return b""
  at, path = place[what]
  if path < 0:
    return link("/proc/%d/fd/%d" % (pid, int32(args[0])))
  p = text(pid, args[path])
  return b"" if p is None else absolute(pid, -100 if at < 0 else int32(args[at]), p)


def descriptor(pid, fd):
  p = call(PIDOPEN, integer(field("/proc/%d/status" % pid, b"Tgid:")) or pid, 0)
  if p < 0:
    return -1
  got = call(PIDGET, p, fd, 0)
  os.close(p)
  return got


def family(pid, fd):
  own = descriptor(pid, fd)
  f = ctypes.create_string_buffer(4)
  if own >= 0 and call(GETSOCKOPT, own, 1, 39, f, pack(4, 4)) == 0:
    return number(f.raw, 0, 4), own
  return 0, own


def wired(fd, address, valid):
  # Connects a copy of a socket: it waits where the process would, and not longer than it does.
  flags = call(FCNTL, fd, 3, 0)
  call(FCNTL, fd, 4, flags | 0x800)
  error = errno() if call(CONNECT, fd, address, len(address)) < 0 else 0
  if error == 115 and not flags & 0x800:
    error = 4
    while valid():
      if call(PPOLL, pack(4, fd, 2, 4, 2, 0), 1, pack(8, 0, 8, 100000000), 0, 0) > 0:
        e = ctypes.create_string_buffer(4)
        call(GETSOCKOPT, fd, 1, 4, e, pack(4, 4))
        error = number(e.raw, 0, 4)
        break
  call(FCNTL, fd, 4, flags)
  return error


def serve():
  n = ctypes.create_string_buffer(80)
  if call(IOCTL, listener, 0xc0502100, n) == 0:
    try:
      decide(n.raw)
    except Exception:
      answer(number(n.raw, 0, 8), error=1) # or it would wait for ever


def decide(b):
  id, pid, what = number(b, 0, 8), number(b, 8, 4), name.get(number(b, 16, 4, True), "")
  args = [number(b, 32 + 8 * i, 8) for i in range(6)]

  def valid():
    return call(IOCTL, listener, 0x40082102, pack(8, id)) == 0

  def goon():
    answer(id, flags=1) if valid() else answer(id, error=1)

  def refuse(error, kind="", about=b""):
    if kind:
      hit(kind, about)
    answer(id, error=error)

  if what in ("open", "openat", "creat"):
    at, arg, flags = -100, args[0], int32(args[1])
    if what == "openat":
      at, arg, flags = int32(args[0]), args[1], int32(args[2])
    if what == "creat":
      flags = 0x241
    p = text(pid, arg)
    if p is None:
      return goon() if landlocked else refuse(30, "write")
    if p == b"/dev/tty":
      return refuse(6)
    if files == "1":
      whole = os.path.normpath(absolute(pid, at, p))
      if not flags & 0x243 and whole == b"/proc":
        hit("list", b"")
      if not flags & 0x243 or not whole.startswith((b"/proc/", b"/sys/", b"/dev/")) or whole.startswith(b"/dev/shm/"):
        return goon()
    give, stream, known = -1, {b"/dev/stdout": b"1", b"/dev/stderr": b"2"}.get(p, b""), [os.fsencode(s) for s in sinks]
    for d in (b"/dev/fd/", b"/proc/self/fd/"):
      if p.startswith(d) and p[len(d):].isdigit():
        stream = p[len(d):]
    try:
      if p in known:
        give = os.open(p, flags & 0xc03 | 0x80100)
      elif stream:
        had = integer(field("/proc/%d/fdinfo/%d" % (pid, int(stream)), b"flags:"), 8)
        held = os.open("/proc/%d/fd/%d" % (pid, int(stream)), 0x280000)
        try:
          to = link("/proc/self/fd/%d" % held)
          if to.startswith(b"socket:"):
            return refuse(6)
          if had & 3 and (to.startswith(b"pipe:") or to in known):
            give = os.open("/proc/self/fd/%d" % held, 0x80901)
            import fcntl
            fcntl.fcntl(give, 4, flags & 0xc00)
        finally:
          os.close(held)
    except OSError:
      pass
    into = call(IOCTL, listener, 0x40182103, pack(8, id, 4, 0, 4, give, 4, 0, 4, flags & 0x80000)) if give >= 0 else -1
    if give >= 0:
      os.close(give)
    return refuse(30, "write", absolute(pid, at, p)) if into < 0 else answer(id, into)

  if what in ("kill", "tkill", "tgkill"):
    to, sig = int32(args[0]), int32(args[2 if what == "tgkill" else 1])
    if what == "kill" and (to == 0 or to < -1):
      group = -to
      if to == 0:
        group = integer((read("/proc/%d/stat" % pid).rpartition(b")")[2].split() + [b"", b"", b""])[2])
      members = [p for p, _, g in everyone() if g == group and ours(p)]
      if members and group != os.getpgrp():
        return goon()
      if members:
        answer(id)
        for p in members:
          try:
            os.kill(p, sig)
          except OSError:
            pass
        return
    elif to > 0 and ours(to):
      return goon()
    comm = read("/proc/%d/comm" % abs(to)).strip()
    return refuse(1, "signal", comm and comm + b" (%d)" % abs(to))
  # A bound for what only multiplies, since root has no other.
  if what in ("fork", "vfork", "clone") and not (what == "clone" and args[0] & 0x7e020000):
    forks.append(id)
    return refuse(11) if len(forks) > 4096 else goon()
  if what == "pidfd_send_signal":
    to = integer(field("/proc/%d/fdinfo/%d" % (pid, int32(args[0])), b"Pid:"))
    if to > 0 and (args[1] == 0 or ours(to)):
      # The descriptor may be of another one by now.
      answer(id)
      try:
        os.kill(to, int32(args[1]))
      except OSError:
        pass
      return
    return refuse(1, "signal")
  if what in ("socket", "listen"):
    return refuse(13, "connect")
  if what in ("bind", "connect"):
    # The filter let the socket be made, and no Unix socket.
    if inet and not sockets:
      return goon()
    # The guard makes the call itself, with the address that it has read and the socket
    # that it has looked at, so that another one cannot be put in between.
    f, fd = family(pid, int32(args[0]))
    try:
      address = memory_of(pid, args[1], min(args[2], 128))
      if inet and f in (2, 10, 16) and address and valid():
        raw = ctypes.create_string_buffer(address, len(address))
        if what == "bind":
          return answer(id, error=errno() if call(BIND, fd, raw, len(address)) < 0 else 0)
        return answer(id, error=wired(fd, raw, valid))
      if what == "bind":
        return refuse(13, "change")
      if f != 1:
        return refuse(13, "connect")
      to = address[2:].split(bytes(1))[0]
      if to and os.fsdecode(to) in sockets and valid():
        whole = ctypes.create_string_buffer(pack(2, 1).raw + to, 110)
        return answer(id, error=errno() if call(CONNECT, fd, whole, 110) < 0 else 0)
      if to and to not in (b"/run/nscd/socket", b"/var/run/nscd/socket", b"/run/systemd/resolve/io.systemd.Resolve"):
        hit("connect", to)
      return refuse(111)
    finally:
      if fd >= 0:
        os.close(fd)
  if what == "ioctl":
    return refuse(1, "device", link("/proc/%d/fd/%d" % (pid, int32(args[0]))))
  refuse(30 if what in place else 1, "change", about(pid, what, args))


def finish():
  # Ends all that comes from this process.
  tree, all = {os.getpid()}, everyone()
  for _ in all:
    more = {p for p, parent, _ in all if parent in tree} - tree
    if not more:
      break
    tree |= more
  for p in tree - {os.getpid()}:
    try:
      os.kill(p, 9)
    except OSError:
      pass
