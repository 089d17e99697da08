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
 * A further question is a further function: look up the key of a GPU with `find`, fill in NVML's shape. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7, UNKNOWN = 999, MOST = 64, WIDTH = 256 };

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

/* A device's handle is its index and one, since NULL is none. */
static int index_of(void *device) { return (int)(size_t)device - 1; }

int nvmlInit_v2(void) { return getenv("NVML_STUB") ? SUCCESS : UNKNOWN; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int error) { (void)error; return "an error of the stub"; }
int nvmlSystemGetDriverVersion(char *out, unsigned length) { return text(-1, "driver", out, length); }

int nvmlDeviceGetCount_v2(unsigned *count) {
  char value[WIDTH];
  for (*count = 0; *count < MOST && find((int)*count, "name", 0, value); ++*count) {}
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  unsigned count;
  nvmlDeviceGetCount_v2(&count);
  if (index >= count) return INVALID;
  *device = (void *)(size_t)(index + 1);
  return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *out, unsigned length) { return text(index_of(device), "name", out, length); }
int nvmlDeviceGetUUID(void *device, char *out, unsigned length) { return text(index_of(device), "uuid", out, length); }

int nvmlDeviceGetMemoryInfo_v2(void *device, Memory *memory) {
  memory->total = number(index_of(device), "total");
  memory->used = number(index_of(device), "used");
  memory->reserved = 0;
  memory->free = memory->total - memory->used;
  return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *processes) {
  char value[WIDTH];
  unsigned room = *count;
  for (*count = 0; *count < MOST && find(index_of(device), "process", (int)*count, value); ++*count) {
    if (*count < room) {
      memset(&processes[*count], 0, sizeof processes[*count]);
      sscanf(value, "%u %llu", &processes[*count].pid, &processes[*count].used);
      processes[*count].gpu_instance = processes[*count].compute_instance = ~0u;
    }
  }
  return *count > room ? TOO_SMALL : SUCCESS;
}
