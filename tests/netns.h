/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A network namespace of one's own for a test, without privilege: its ports and addresses are free
 * and nothing leaves it. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static inline int netns_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), r = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		r = -errno;
	close(fd);
	return r;
}

static inline int netns_lo_up(void)
{
	struct ifreq q = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), r = 0;

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &q) < 0)
		r = -errno;
	if (fd >= 0)
		close(fd);
	return r;
}

/* Moves this process into a new user and network namespace with lo up; a chroot and some containers
 * refuse the former, and then root does without it. Negative errno where the machine lets us do
 * neither: then the test is to be skipped. */
static inline int netns_enter(void)
{
	unsigned uid = getuid(), gid = getgid();
	char map[32];
	int r;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0) {
		r = -errno;
		return unshare(CLONE_NEWNET) < 0 ? r : netns_lo_up();
	}
	(void) netns_write("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %u 1", uid);
	r = netns_write("/proc/self/uid_map", map);
	if (r < 0)
		return r;
	snprintf(map, sizeof(map), "0 %u 1", gid);
	r = netns_write("/proc/self/gid_map", map);
	return r < 0 ? r : netns_lo_up();
}

static inline int netns_skip(int r)
{
	printf("1..0 # SKIP no user and network namespace here: %s\n", strerror(-r));
	return 0;
}

/* fork() whose child dies with the test. 0 in the child. */
static inline pid_t netns_fork(void)
{
	pid_t p;

	fflush(stdout);
	p = fork();
	if (p == 0)
		(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
	return p;
}

static inline void netns_reap(pid_t p)
{
	if (p > 0) {
		(void) kill(p, SIGKILL);
		(void) waitpid(p, NULL, 0);
	}
}

/* A bound socket; family by the text of the address. For TCP it listens. */
static inline int netns_bind(const char *address, uint16_t port, int type, int backlog)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	bool v6 = strchr(address, ':');
	int fd, one = 1;

	fd = socket(v6 ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	(void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (inet_pton(v6 ? AF_INET6 : AF_INET, address,
	              v6 ? (void *) &in6.sin6_addr : (void *) &in.sin_addr) != 1 ||
	    bind(fd, v6 ? (struct sockaddr *) &in6 : (struct sockaddr *) &in,
	         v6 ? sizeof(in6) : sizeof(in)) < 0 ||
	    (type == SOCK_STREAM && listen(fd, backlog) < 0)) {
		close(fd);
		return -1;
	}
	return fd;
}
