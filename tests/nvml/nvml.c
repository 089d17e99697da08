/* A driver's management library that says what a text file says, for machines without a GPU.
 *
 * NVML_STUB names the file; it is read anew with every question, so that a test changes the answer by
 * replacing the file. A line each, words apart by blanks; what is not there is zero or "not supported":
 *
 *     driver 580.65.06
 *     gpu 0 name NVIDIA H200
 *     gpu 0 total 151397597184
 *     gpu 0 used 1073741824
 *     gpu 0 process 4711 1073741824
 *
 *     gpu 0 graphics 4712 104857600
 *     gpu 0 lost yes                                      every question about it: fell off the bus
 *     gpu 0 hang yes                                      is not answered as long as this stands there
 *     gpu 0 forbidden yes                                 no permission
 *     hang yes                                            nor is the first one to the library
 *     cuda 13000                                          13.0
 *     gpu 0 ecc 1
 *     gpu 0 power 120000                                  mW, as power-limit
 *     gpu 0 sm-clock 345                                  MHz, as max-sm-clock, memory-clock, max-memory-clock
 *     gpu 0 pcie 1 16                                     generation and width, as max-pcie
 *     gpu 0 nvlink 1                                      a line for each link, 0 where it is down
 *     gpu 0 temperature 34
 *     gpu 0 mig 1
 *     gpu 0 slice MIG-1a 3g.71gb 74893492224 1048576 2 0  id, profile, memory and that in use, its two instances
 *     gpu 0 slice0-process 4713 1048576                   on the first slice
 *
 * A further question is a further function: look up the key of a GPU with `find`, fill in NVML's shape. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, FORBIDDEN = 4, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15, UNKNOWN = 999 };
enum { MOST = 64, WIDTH = 256 };

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;

/* The nth line of `key` of GPU `gpu` (-1: a line of the machine): what follows the key; 0 where none. */
static int find(int gpu, const char *key, int nth, char *value) {
  const char *path = getenv("NVML_STUB");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[WIDTH], prefix[WIDTH];
  int found = 0;
  if (!file) return 0;
  if (gpu < 0) snprintf(prefix, sizeof prefix, "%s ", key);
  else snprintf(prefix, sizeof prefix, "gpu %d %s ", gpu, key);
  while (!found && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    if (strncmp(line, prefix, strlen(prefix)) == 0 && nth-- == 0) {
      strcpy(value, line + strlen(prefix));
      found = 1;
    }
  }
  fclose(file);
  return found;
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

/* Whether a device answers at all, and waits where it hangs. */
static int asked(void *device) {
  char value[WIDTH];
  while (find(index_of(device), "hang", 0, value)) usleep(20000);
  return find(index_of(device), "lost", 0, value) ? LOST : SUCCESS;
}

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
  int error = asked(device), cut = slice(index_of(device), slice_of(device), &it);
  if (error) return error;
  memory->total = cut ? it.total : number(index_of(device), "total");
  memory->used = cut ? it.used : number(index_of(device), "used");
  memory->reserved = 0;
  memory->free = memory->total - memory->used;
  return SUCCESS;
}

static int processes_of(void *device, const char *key, unsigned *count, Process *processes) {
  char value[WIDTH];
  unsigned room = *count;
  int error = asked(device);
  if (error) return error;
  for (*count = 0; *count < MOST && find(index_of(device), key, (int)*count, value); ++*count) {
    if (*count < room) {
      memset(&processes[*count], 0, sizeof processes[*count]);
      sscanf(value, "%u %llu", &processes[*count].pid, &processes[*count].used);
      processes[*count].gpu_instance = processes[*count].compute_instance = ~0u;
    }
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

/* What it reads right now. */

int nvmlDeviceGetPowerUsage(void *device, unsigned *out) { return figure(device, "power", 0, out); }
int nvmlDeviceGetTemperature(void *device, unsigned sensor, unsigned *out) { (void)sensor; return figure(device, "temperature", 0, out); }

int nvmlDeviceGetClockInfo(void *device, unsigned domain, unsigned *out) {
  return figure(device, domain == 2 ? "memory-clock" : "sm-clock", 0, out);
}
