/* A driver's management library that says what a text file says, for machines without a GPU.
 *
 * NVML_STUB names the file; it is read anew whenever another file has its name, so that a test changes the answer
 * by replacing it (write it beside, then rename). A line each, words apart by blanks; what is not there is zero or
 * "not supported":
 *
 *     driver 580.65.06
 *     gpu 0 name NVIDIA H200
 *     gpu 0 total 151397597184
 *     gpu 0 used 1073741824
 *     gpu 0 process 4711 1073741824
 *
 *     gpu 0 graphics 4712 104857600
 *     gpu 0 forbidden yes                                 no permission
 *     hang yes                                            the first question to the library is not answered
 *     cuda 13000                                          13.0
 *     gpu 0 ecc 1
 *     gpu 0 power-limit 700000                            mW
 *     gpu 0 max-sm-clock 1980                             MHz, as max-memory-clock
 *     gpu 0 pcie 1 16                                     generation and width, as max-pcie
 *     gpu 0 nvlink 1                                      a line for each link, 0 where it is down
 *     gpu 0 mig 1
 *     gpu 0 slice MIG-1a 3g.71gb 74893492224 1048576 2 0  id, profile, memory and that in use, its two instances
 *     gpu 0 slice0-process 4713 1048576                   on the first slice
 *
 *     tell hot                                            a file SCRIPT.hot is left once somebody has asked why clocks are
 *                                                         held back while this stands there
 *
 * What changes with time, in seconds since `epoch` (the clock of the day), or else since the first question:
 *
 *     epoch 1764519772.25
 *     gpu 0 power 300000                     of its values: power (mW) utilisation used sm-clock memory-clock
 *     gpu 0 series power 0:300000 5:650000   temperature throttle ecc-corrected ecc-uncorrected; a series goes
 *     gpu 0 steps temperature 0:60 3:90      straight from one to the next, steps stay until the next
 *     gpu 0 energy counter                   the integral of its power, from the epoch on
 *     gpu 0 process 4711 1073741824 2.0 5.0  a process that comes and goes
 *     gpu 0 xid 1.5 79                       an error, told once
 *     gpu 0 lost 2.0                         it has fallen off the bus; `yes`: from the first question on
 *     gpu 0 hang 2.0                         questions are not answered as long as this stands there, or `yes`; of both
 *                                            a file SCRIPT.told is left once somebody has met with it
 *
 * A further question is a further function: look up the key of a GPU with `find`, fill in NVML's shape. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, FORBIDDEN = 4, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15, UNKNOWN = 999 };
enum { MOST = 64, WIDTH = 256 };

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;

/* The script, read once for each file that had its name. */
static char *script(void) {
  static __thread char *text = NULL;
  static __thread struct stat known;
  struct stat now;
  const char *path = getenv("NVML_STUB");
  FILE *file;
  if (!path || stat(path, &now) != 0) return NULL;
  if (text && now.st_ino == known.st_ino && now.st_size == known.st_size &&
      now.st_mtim.tv_sec == known.st_mtim.tv_sec && now.st_mtim.tv_nsec == known.st_mtim.tv_nsec)
    return text;
  if (!(file = fopen(path, "r"))) return NULL;
  free(text);
  text = calloc(1, (size_t)now.st_size + 1);
  if (text && fread(text, 1, (size_t)now.st_size, file) != (size_t)now.st_size) text[0] = 0;
  fclose(file);
  known = now;
  return text;
}

/* The nth line of `key` of GPU `gpu` (-1: a line of the machine): what follows the key; 0 where none. */
static int find(int gpu, const char *key, int nth, char *value) {
  char prefix[WIDTH];
  size_t length, width;
  char *line = script();
  if (gpu < 0) snprintf(prefix, sizeof prefix, "%s ", key);
  else snprintf(prefix, sizeof prefix, "gpu %d %s ", gpu, key);
  width = strlen(prefix);
  for (; line && *line; line += length + (line[length] == '\n')) {
    length = strcspn(line, "\n");
    if (length >= width && length - width < WIDTH && strncmp(line, prefix, width) == 0 && nth-- == 0) {
      memcpy(value, line + width, length - width);
      value[length - width] = 0;
      return 1;
    }
  }
  return 0;
}

/* Seconds since the epoch of the script, or else since the first question. */
static double seconds(void) {
  static double first = 0;
  char value[WIDTH];
  struct timespec now;
  double at;
  clock_gettime(CLOCK_REALTIME, &now);
  at = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
  if (first == 0) first = at;
  return at - (find(-1, "epoch", 0, value) ? strtod(value, NULL) : first);
}

/* Reads the next `time:value` of a series; 0 where there is none. */
static int next(char **text, double *time, double *value) {
  char *end;
  *time = strtod(*text, &end);
  if (end == *text || *end != ':') return 0;
  *value = strtod(end + 1, text);
  return 1;
}

/* A value at a time, by its series, its steps or its one number; 0 where it has none of them. */
static int value_at(int gpu, const char *key, double at, double *found) {
  char name[WIDTH], value[WIDTH], *rest = value;
  double time, level, before = 0, last = 0;
  int steps, any = 0;
  snprintf(name, sizeof name, "series %s", key);
  steps = !find(gpu, name, 0, value);
  snprintf(name, sizeof name, "steps %s", key);
  if (steps && !find(gpu, name, 0, value)) {
    if (!find(gpu, key, 0, value)) return 0;
    *found = strtod(value, NULL);
    return 1;
  }
  while (next(&rest, &time, &level)) {
    if (!any || at >= time) *found = level;
    else if (!steps && at > before) *found = last + (level - last) * (at - before) / (time - before);
    any = 1;
    if (at < time) break;
    before = time;
    last = level;
  }
  return any;
}

/* Leaves a file beside the script: somebody has met with a GPU that is lost or hangs, or with what it `tell`s. */
static void leave(const char *name) {
  char path[4096];
  FILE *file;
  snprintf(path, sizeof path, "%s.%s", getenv("NVML_STUB"), name);
  if ((file = fopen(path, "w"))) fclose(file);
}

/* What a GPU that is lost or hangs says to a question. */
static int state(int gpu) {
  char value[WIDTH];
  double at = seconds();
  if (find(gpu, "hang", 0, value) && at >= strtod(value, NULL)) leave("told");
  while (find(gpu, "hang", 0, value) && at >= strtod(value, NULL)) usleep(20000);
  if (find(gpu, "lost", 0, value) && at >= strtod(value, NULL)) { leave("told"); return LOST; }
  return SUCCESS;
}

static unsigned long long number(int gpu, const char *key) {
  char value[WIDTH];
  return find(gpu, key, 0, value) ? strtoull(value, NULL, 10) : 0;
}

static int text(int gpu, const char *key, char *out, unsigned length) {
  char value[WIDTH];
  if (!find(gpu, key, 0, value)) return NOT_SUPPORTED;
  snprintf(out, length, "%s", value);
  return SUCCESS;
}

/* A device's handle is its index and one, since NULL is none; a slice's has its place and one above that. */
static int index_of(void *device) { return ((int)(size_t)device & 0xff) - 1; }
static int slice_of(void *device) { return ((int)(size_t)device >> 8) - 1; }

typedef struct { char id[WIDTH], profile[WIDTH]; unsigned long long total, used; unsigned gpu_instance, compute_instance; } Slice;

static int slice(int gpu, int nth, Slice *out) {
  char value[WIDTH];
  return nth >= 0 && find(gpu, "slice", nth, value) &&
         sscanf(value, "%s %s %llu %llu %u %u", out->id, out->profile, &out->total, &out->used, &out->gpu_instance, &out->compute_instance) == 6;
}

/* Whether a device answers at all. */
static int asked(void *device) { return state(index_of(device)); }

int nvmlInit_v2(void) {
  char value[WIDTH];
  while (find(-1, "hang", 0, value)) usleep(20000);
  return getenv("NVML_STUB") ? SUCCESS : UNKNOWN;
}

int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int error) { (void)error; return "an error of the stub"; }
int nvmlSystemGetDriverVersion(char *out, unsigned length) { return text(-1, "driver", out, length); }

int nvmlDeviceGetCount_v2(unsigned *count) {
  char value[WIDTH];
  for (*count = 0; *count < MOST && find((int)*count, "name", 0, value); ++*count) {}
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  char value[WIDTH];
  unsigned count;
  nvmlDeviceGetCount_v2(&count);
  if (index >= count) return INVALID;
  if (find((int)index, "forbidden", 0, value)) return FORBIDDEN;
  *device = (void *)(size_t)(index + 1);
  return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *out, unsigned length) {
  Slice it;
  char name[WIDTH];
  int error = asked(device);
  if (error) return error;
  if (!slice(index_of(device), slice_of(device), &it)) return text(index_of(device), "name", out, length);
  if ((error = text(index_of(device), "name", name, sizeof name))) return error;
  snprintf(out, length, "%s MIG %s", name, it.profile);
  return SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *out, unsigned length) {
  Slice it;
  int error = asked(device);
  if (error) return error;
  if (!slice(index_of(device), slice_of(device), &it)) return text(index_of(device), "uuid", out, length);
  snprintf(out, length, "%s", it.id);
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, Memory *memory) {
  Slice it;
  int gpu = index_of(device), error = asked(device), cut = slice(gpu, slice_of(device), &it);
  double used = 0;
  if (error) return error;
  value_at(gpu, "used", seconds(), &used);
  memory->total = cut ? it.total : number(gpu, "total");
  memory->used = cut ? it.used : (unsigned long long)used;
  memory->reserved = 0;
  memory->free = memory->total - memory->used;
  return SUCCESS;
}

static int processes_of(void *device, const char *key, unsigned *count, Process *processes) {
  char value[WIDTH];
  unsigned room = *count;
  int nth, gpu = index_of(device), lost = asked(device);
  if (lost) return lost;
  *count = 0;
  for (nth = 0; nth < MOST && find(gpu, key, nth, value); ++nth) {
    Process process;
    double at = seconds(), from = 0, to = 0;
    int told;
    memset(&process, 0, sizeof process);
    told = sscanf(value, "%u %llu %lf %lf", &process.pid, &process.used, &from, &to);
    if ((told > 2 && at < from) || (told > 3 && at >= to)) continue;
    process.gpu_instance = process.compute_instance = ~0u;
    if (*count < room) processes[*count] = process;
    ++*count;
  }
  return *count > room ? TOO_SMALL : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *processes) {
  char key[32] = "process";
  if (slice_of(device) >= 0) snprintf(key, sizeof key, "slice%d-process", slice_of(device));
  return processes_of(device, key, count, processes);
}

/* Facts beyond name and memory. */

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  char value[WIDTH];
  if (!find(-1, "cuda", 0, value)) return NOT_SUPPORTED;
  *version = atoi(value);
  return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, Process *processes) {
  return processes_of(device, "graphics", count, processes);
}

/* The `nth` word of a key as a number. */
static int figure(void *device, const char *key, int nth, unsigned *out) {
  char value[WIDTH], *rest = value;
  int error = asked(device);
  if (error) return error;
  if (slice_of(device) >= 0 || !find(index_of(device), key, 0, value)) return NOT_SUPPORTED;
  do *out = (unsigned)strtoul(rest, &rest, 10); while (nth-- > 0);
  return SUCCESS;
}

int nvmlDeviceGetEccMode(void *device, unsigned *now, unsigned *pending) {
  int error = figure(device, "ecc", 0, now);
  *pending = *now;
  return error;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *out) { return figure(device, "power-limit", 0, out); }
int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *out) { return figure(device, "max-pcie", 0, out); }
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *out) { return figure(device, "max-pcie", 1, out); }
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *out) { return figure(device, "pcie", 0, out); }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *out) { return figure(device, "pcie", 1, out); }

/* Of the domains 1 is the multiprocessors', 2 the memory's. */
int nvmlDeviceGetMaxClockInfo(void *device, unsigned domain, unsigned *out) {
  return figure(device, domain == 2 ? "max-memory-clock" : "max-sm-clock", 0, out);
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *up) {
  char value[WIDTH];
  int error = asked(device);
  if (error) return error;
  if (!find(index_of(device), "nvlink", (int)link, value)) return link ? INVALID : NOT_SUPPORTED;
  *up = (unsigned)atoi(value);
  return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending) {
  int error = figure(device, "mig", 0, now);
  *pending = *now;
  return error;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
  *count = 7;
  return asked(device);
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned nth, void **out) {
  Slice it;
  int error = asked(device);
  if (error) return error;
  if (!slice(index_of(device), (int)nth, &it)) return NOT_FOUND;
  *out = (void *)(((size_t)nth + 1) << 8 | (size_t)device);
  return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(void *device, unsigned *id) {
  Slice it;
  if (!slice(index_of(device), slice_of(device), &it)) return INVALID;
  *id = it.gpu_instance;
  return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(void *device, unsigned *id) {
  Slice it;
  if (!slice(index_of(device), slice_of(device), &it)) return INVALID;
  *id = it.compute_instance;
  return SUCCESS;
}

/* Telemetry. */

typedef struct { unsigned gpu, memory; } Utilisation;
typedef struct { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; } Event;
typedef struct { unsigned long long gpus; double heard[MOST]; } Events;

static int value_of(void *device, const char *key, double *value) {
  int gpu = index_of(device), lost = state(gpu);
  if (lost) return lost;
  if (slice_of(device) >= 0) return NOT_SUPPORTED;
  return value_at(gpu, key, seconds(), value) ? SUCCESS : NOT_SUPPORTED;
}

static int whole(void *device, const char *key, unsigned *out) {
  double value = 0;
  int said = value_of(device, key, &value);
  if (said == SUCCESS) *out = (unsigned)(value + 0.5);
  return said;
}

static int large(void *device, const char *key, unsigned long long *out) {
  double value = 0;
  int said = value_of(device, key, &value);
  if (said == SUCCESS) *out = (unsigned long long)value;
  return said;
}

int nvmlDeviceGetIndex(void *device, unsigned *index) { *index = (unsigned)index_of(device); return SUCCESS; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) { return whole(device, "power", milliwatts); }

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
  char value[WIDTH], *rest = value;
  int gpu = index_of(device), lost = state(gpu), any = 0, steps;
  double now = seconds(), level, sum = 0, time = 0, before = 0, last = 0;
  if (lost) return lost;
  if (!find(gpu, "energy", 0, value)) return NOT_SUPPORTED;
  steps = !find(gpu, "series power", 0, value);
  if (!steps || find(gpu, "steps power", 0, value)) {
    while (next(&rest, &time, &level)) {
      double here = time < now ? time : now, at_here = 0;
      value_at(gpu, "power", here, &at_here);
      if (any && here > before) sum += (here - before) * (steps ? last : (last + at_here) / 2);
      any = 1;
      before = here;
      last = at_here;
    }
    if (now > before) sum += (now - before) * last;
  } else if (value_at(gpu, "power", now, &level)) {
    sum = level * now;
  }
  *millijoules = (unsigned long long)(sum > 0 ? sum : 0);
  return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, Utilisation *rates) {
  rates->memory = 0;
  return whole(device, "utilisation", &rates->gpu);
}

int nvmlDeviceGetClockInfo(void *device, unsigned domain, unsigned *mhz) {
  return whole(device, domain == 2 ? "memory-clock" : "sm-clock", mhz);
}

int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *celsius) {
  (void)sensor;
  return whole(device, "temperature", celsius);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
  char name[WIDTH];
  int said = large(device, "throttle", reasons), tells = find(-1, "tell", 0, name);
  if (said == SUCCESS && tells) leave(name);
  return said;
}

int nvmlDeviceGetTotalEccErrors(void *device, unsigned type, unsigned counter, unsigned long long *count) {
  (void)counter;
  return large(device, type == 0 ? "ecc-corrected" : "ecc-uncorrected", count);
}

int nvmlEventSetCreate(void **set) {
  *set = calloc(1, sizeof(Events));
  return *set ? SUCCESS : UNKNOWN;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
  (void)types;
  ((Events *)set)->gpus |= 1ull << index_of(device);
  ((Events *)set)->heard[index_of(device)] = seconds();
  return SUCCESS;
}

int nvmlEventSetWait_v2(void *set, Event *event, unsigned milliseconds) {
  Events *events = set;
  char value[WIDTH];
  double now = seconds(), at;
  int gpu, nth;
  (void)milliseconds;
  for (gpu = 0; gpu < MOST; ++gpu) {
    if (!(events->gpus >> gpu & 1)) continue;
    for (nth = 0; nth < MOST && find(gpu, "xid", nth, value); ++nth) {
      memset(event, 0, sizeof *event);
      if (sscanf(value, "%lf %llu", &at, &event->data) != 2 || at > now || at <= events->heard[gpu]) continue;
      events->heard[gpu] = at;
      event->device = (void *)(size_t)(gpu + 1);
      event->type = 8;
      return SUCCESS;
    }
  }
  return TIMEOUT;
}

int nvmlEventSetFree(void *set) { free(set); return SUCCESS; }
