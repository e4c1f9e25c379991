/* SPDX-License-Identifier: Apache-2.0 */
#include "node.h"

/* A node that pulls its images has joined, or has failed to, by then. */
static const usec_t joined_by = 180 * USEC_PER_SEC;

/* EC2 is asked by nodeadm, by the CNI, and STS by whatever has a web identity: on every node. The
 * others are asked by some nodes only, and a sound private cluster may well lack them:
 * - EKS: AL2's bootstrap.sh and Bottlerocket ask it once for the API server and the CA, which then
 *   stand in the kubeconfig; AL2023 has them from its user data and never asks.
 * - ECR and S3 (the layers): whoever pulls the images of EKS from them. A node whose images come
 *   from a mirror does not, and cannot be told from one that needs them but by this: it becomes
 *   Ready without them. So what has never answered is a fault only while the node is not Ready;
 *   what has answered once, and no longer does, is one at any time. */
enum misses node_misses(const struct node *n, enum service s, bool answered, usec_t uptime)
{
	if (s == SERVICE_EC2 || s == SERVICE_STS)
		return MISSES_IT;
	if (s == SERVICE_EKS)
		return n->asks_eks && !n->apiserver.host[0] ? MISSES_IT : MISSES_NOTHING;
	if (answered)
		return MISSES_IT;
	if (n->ready == YES)
		return MISSES_NOTHING;
	return uptime < joined_by ? MISSES_UNSURE : MISSES_IT;
}

bool node_is_proxied(const struct node *n, const char *host, uint16_t port)
{
	return n->proxy.host[0] && host[0] && !proxy_bypasses(n->no_proxy, host, port);
}

const char *region_source_name(enum region_source s)
{
	static const char *const names[] = {"unknown",    "metadata", "environment",
	                                    "kubeconfig", "resolv",   "state"};

	return names[s];
}

const char *managed_by_name(enum managed_by m)
{
	static const char *const names[] = {NULL, "primary", "cni", "networkd", "nobody"};

	return names[m];
}

const char *witness_name(enum witness w)
{
	static const char *const names[] = {"metadata", "AWS endpoint", "API server"};

	return names[w];
}

/* The API server is asked every five minutes while all is well. */
static const usec_t witness_max_age = 360 * USEC_PER_SEC;
/* A Date header has whole seconds, and was a while on its way. */
static const int64_t witness_agree_s = 5;

static bool is_heard(const struct node *n, enum witness w, usec_t now)
{
	usec_t at = n->witnesses[w].at;

	return at && now < at + witness_max_age;
}

static bool is_sound(int64_t offset_s)
{
	return offset_s >= -CLOCK_SOUND_S && offset_s <= CLOCK_SOUND_S;
}

static unsigned count(unsigned bits)
{
	unsigned n = 0;

	for (; bits; bits &= bits - 1)
		n++;
	return n;
}

static unsigned agreeing(const struct node *n, enum witness w, usec_t now)
{
	unsigned who = 0;

	for (enum witness o = 0; o < _WITNESS_MAX; o++) {
		int64_t apart = n->witnesses[o].offset_s - n->witnesses[w].offset_s;

		if (is_heard(n, o, now) && apart >= -witness_agree_s && apart <= witness_agree_s)
			who |= 1u << o;
	}
	return who;
}

void node_clock(const struct node *n, usec_t now, struct clock_said *ret)
{
	struct clock_said c = {0};
	bool all_sound = true;

	for (enum witness w = 0; w < _WITNESS_MAX; w++) {
		unsigned who, agree;

		if (!is_heard(n, w, now))
			continue;
		c.heard++;
		all_sound &= is_sound(n->witnesses[w].offset_s);
		who = agreeing(n, w, now);
		agree = count(who);
		if (agree <= c.agree)
			continue;
		c.agree = agree;
		c.who = who;
		c.offset_s = n->witnesses[w].offset_s;
	}
	if (c.agree >= 2)
		c.sound = is_sound(c.offset_s) ? YES : NO;
	else if (c.heard > 0 && all_sound)
		c.sound = YES;
	*ret = c;
}
