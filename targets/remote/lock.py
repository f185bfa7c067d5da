# What lock.pl does, for a system that has python3 and no perl. It needs Python 3.6 and of
# its library only ctypes and os. lock.pl has the explanations.
import ctypes, os, sys, time
token, guard = sys.argv[1:3]
args, argv, environ, limit, grace, merged = sys.argv[3:16], sys.argv[16:], None, 0, 1, False


def control(*words):
  try:
    os.write(2, b" ".join([token.encode()] + [w if isinstance(w, bytes) else w.encode() for w in words]) + bytes([10]))
  except OSError:
    pass


if not argv:
  guard = compile(guard, "guard", "exec")
  n = sys.stdin.buffer.readline()
  if not n:
    os._exit(0)
  job = sys.stdin.buffer.read(int(n))
  if len(job) != int(n):
    os._exit(125)
  argv = [os.fsdecode(a) for a in job.split(bytes(1))[:-1]]
  (where, identity), (limit, grace, merged, n), argv = argv[:2], map(int, argv[2:6]), argv[6:]
  environ, n, argv = argv[:n], int(argv[n]), argv[n + 1:]
  if n:
    args, argv = argv[:n], argv[n:]
  why = "changed"
  try:
    os.chdir(where)
    s = os.stat(".")
    if identity in ("", "%d:%d" % (s.st_dev, s.st_ino)):
      why = ""
  except OSError:
    why = "missing" if not os.path.exists(where) else "denied" if os.path.isdir(where) else "notdir"
  if why:
    control("x", why)
    os._exit(125)
  fd = os.open("/dev/null", 0)
  os.dup2(fd, 0)
  os.close(fd)
  if limit:
    limit += time.time()
(code, calls, own, rules, sinks, readable, keep, memory, processes, seconds, inet, sockets, files) = args
(PRCTL, CAPGET, CAPSET, CREATE, ADDRULE, RESTRICT, PRLIMIT, SECCOMP, SENDMSG, RECVMSG, PPOLL, IOCTL, OPENAT, CLOSE,
 PIDOPEN, PIDGET, GETSOCKOPT, CONNECT, BIND, FCNTL) = map(int, own.split(","))
keep = int(keep)
listener, landlocked = -1, 0
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
long = ctypes.c_long


def call(*args):
  return libc.syscall(*[long(a) if isinstance(a, int) else ctypes.byref(a) for a in args])


def errno():
  return ctypes.get_errno()


def pack(*fields):
  # Pairs of a width in bytes and a number, as the machine has them.
  b = b"".join((n & (1 << 8 * w) - 1).to_bytes(w, sys.byteorder) for w, n in zip(fields[::2], fields[1::2]))
  return ctypes.create_string_buffer(b, len(b))


def number(b, at, width, signed=False):
  return int.from_bytes(b[at:at + width], sys.byteorder, signed=signed)


def broken(why):
  control("n", why + ": " + os.strerror(errno()))
  os._exit(125)


def hold(parent):
  if call(PRCTL, 38, 1, 0, 0, 0) != 0:
    broken("no_new_privs")
  head, data = pack(4, 0x20080522, 4, 0), ctypes.create_string_buffer(24)
  if call(CAPGET, head, data) != 0:
    broken("capget")
  c = [number(data.raw, 4 * i, 4) for i in range(6)]
  data = pack(*[x for i, v in enumerate(c) for x in (4, 0 if i % 3 == 2 else v & keep >> i // 3 * 32)])
  if call(CAPSET, head, data) != 0:
    broken("capset")
  call(PRCTL, 1, 9, 0, 0, 0)
  if os.getppid() != parent:
    os._exit(125)

  version = call(CREATE, 0, 0, 1)
  r = rules.split(";") if rules else []
  if version > 0 and r:
    fs, net, scoped, reading, writing, below = map(int, r[min(version, len(r)) - 1].split(","))
    ruleset = call(CREATE, pack(8, fs, 8, net, 8, scoped), 24, 0)
    if ruleset < 0:
      broken("landlock_create_ruleset")
    access = {p: reading | writing for p in sinks.split(",")}
    if below:
      access["/"] = below
    if reading:
      for p in readable.split(",") + ["/" + d for d in os.listdir("/") if d != "dev"]:
        access[p] = access.get(p, 0) | reading
    for p, a in access.items():
      try:
        fd = os.open(p, 0x280000)
      except OSError:
        continue
      if call(ADDRULE, ruleset, 1, pack(8, a, 4, fd), 0) != 0:
        broken("landlock_add_rule for " + p)
      os.close(fd)
    if call(RESTRICT, ruleset, 0, 0) != 0:
      broken("landlock_restrict_self")
    os.close(ruleset)
  else:
    version = 0

  most = {4: 0, 2: int(memory), 0: int(seconds)}
  uid = os.geteuid()
  if uid:
    most[6] = int(processes)
    for p in os.listdir("/proc"):
      if p.isdigit():
        try:
          s = os.stat("/proc/" + p + "/task")
        except OSError:
          continue
        most[6] += s.st_nlink - 2 if s.st_uid == uid else 0
  for which, n in most.items():
    old = ctypes.create_string_buffer(16)
    if call(PRLIMIT, 0, which, 0, old) == 0 and number(old.raw, 8, 8) >= n:
      call(PRLIMIT, 0, which, pack(8, n, 8, n), 0)

  import _signal
  # Python ignores these; what it starts would, too.
  _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
  _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
  program = bytes.fromhex(code)
  filter = ctypes.create_string_buffer(program, len(program))
  fd = call(SECCOMP, 1, 8, pack(8, len(program) // 8, 8, ctypes.addressof(filter)))
  if fd < 0:
    broken("seccomp")
  return fd, version


def answers():
  # Compiles guard.py. What is asked of a guard that cannot be compiled fails when this ends.
  global guard
  if guard:
    exec(guard, globals())
    guard = ""


def message(nr, fd, byte, extra):
  part = pack(8, ctypes.addressof(byte), 8, 1)
  return call(nr, fd, pack(8, 0, 8, 0, 8, ctypes.addressof(part), 8, 1, 8, ctypes.addressof(extra), 8, 24, 8, 0), 0 if nr == SENDMSG else 0x40000000)


import _socket
mine, its = _socket.socketpair()
mine, its = mine.detach(), its.detach()
call(PRCTL, 36, 1, 0, 0, 0)
parent = os.getpid()
child = os.fork()
if not child:
  try:
    os.close(mine)
    fd, version = hold(parent)
    if message(SENDMSG, its, pack(1, version), pack(8, 20, 4, 1, 4, 1, 4, fd, 4, 0)) != 1:
      broken("sendmsg")
    try:
      words = [os.fsencode(a) for a in argv]
      if merged:
        os.dup2(1, 2)
      if environ is not None:
        libc.clearenv()
        kept = [ctypes.create_string_buffer(os.fsencode(v)) for v in environ]
        for v in kept:
          libc.putenv(v)
      libc.execvp(words[0], (ctypes.c_char_p * (len(words) + 1))(*words, None))
      why = errno()
      os.write(2, words[0] + b": " + os.strerror(why).encode() + bytes([10]))
      os._exit(127 if why == 2 else 126)
    finally:
      os._exit(125)
  except BaseException as e:
    control("n", str(e))
  os._exit(125)
os.close(its)
import _signal
for s in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGPIPE):
  _signal.signal(s, _signal.SIG_IGN)
byte, extra = ctypes.create_string_buffer(1), ctypes.create_string_buffer(24)
if message(RECVMSG, mine, byte, extra) != 1:
  os.waitpid(child, 0)
  os._exit(125)
os.close(mine)
listener, landlocked = number(extra.raw, 16, 4), byte.raw[0]
ended = call(PIDOPEN, child, 0)
copy = call(PIDGET, ended, 2, 0) # an engine may forbid that
if copy >= 0:
  os.close(copy)
control("l", str(landlocked), "1" if copy >= 0 else "0")
null = os.open("/dev/null", 2)
os.dup2(null, 0)
os.dup2(null, 1)

status, left = None, 0
while True:
  wait = pack(8, 0, 8, 200000000 if status is None and ended >= 0 else 1000000)
  polled = pack(4, listener, 2, 1, 2, 0, 4, ended if status is None else -1, 2, 1, 2, 0)
  ready = number(polled.raw, 6, 2) if call(PPOLL, polled, 2, wait, 0, 0) > 0 else 0
  if ready & 1:
    answers()
    serve()
  elif ready:
    listener = -1
  dead = 1
  while dead:
    try:
      dead, how = os.waitpid(-1, 1)
    except OSError:
      dead = -1
      break
    if dead == child:
      status = how
  if limit and time.time() >= limit:
    # Nobody else has ended the group.
    os.killpg(0, _signal.SIGTERM if grace else _signal.SIGKILL)
    limit, grace = limit + grace, 0
  if status is None:
    continue
  left += 1
  if dead < 0 or left > 1000:
    break
  if left < 5:
    continue
  answers()
  finish()
os._exit(128 + (status & 127) if status & 127 else status >> 8)
