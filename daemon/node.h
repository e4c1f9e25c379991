/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What is known of this node: filled in by probes (run_learn()), read by all. A plain value. */

#include "aws.h"
#include "dns.h"
#include "ec2-query.h"
#include "netlink.h"
#include "proxy.h"

enum { ENIS_MAX = 64, CARDS_MAX = 32 }; /* p5.48xlarge: 64 ENIs over 32 cards (network-cards.tsv) */

enum managed_by { MANAGED_UNKNOWN, MANAGED_PRIMARY, MANAGED_CNI, MANAGED_NETWORKD, MANAGED_NOBODY };

struct eni {
	char mac[MAC_TEXT_MAX];
	char name[IFNAMSIZ]; /* "" when the kernel has no such link */
	char eni_id[32], subnet_id[32];
	int device, card;    /* -1: not known */
	struct address ipv4; /* its primary private address; family 0: not known or EFA-only */
	int ips_assigned;    /* secondary IPv4 addresses plus 16 per prefix; -1: not known */
	int prefixes;        /* IPv4 (or IPv6) prefixes; -1: not known */
	int pod_ips;         /* pod addresses in use that belong to it */
	enum managed_by managed_by;
	bool in_metadata, in_kernel, up, carrier;
};

struct network {
	bool known; /* the kernel was read at least once */
	struct eni enis[ENIS_MAX];
	size_t n_enis;
	bool enis_complete; /* metadata's per-MAC tree was read for all of them */
	/* -1: not known */
	int enis_attached, enis_max, ipv4_per_eni, ips_assigned, ips_max, pod_ips_in_use;
	int max_pods;         /* kubelet's own maxPods */
	int max_pods_by_type; /* what the instance type gives in this mode */
	bool prefix_mode, ipv6;
	char limits_source[32]; /* "built in", "/etc/nodewhy", "/usr/share/nodewhy", "" unknown type
	                         */
	usec_t pod_refused_at; /* CLOCK_BOOTTIME when a pod was last refused an address; 0: never */
};

/* An ENI as ipamd sees it, by its introspection. */
struct ipamd_eni {
	char id[32], subnet[32];
	int card, device;
	uint32_t table;
	bool primary, trunk, efa, excluded;
	int total;    /* IPv4 addresses for pods: 16 of a prefix */
	int assigned; /* of them to pods */
	int cooling;  /* of them given back a moment ago */
	int prefixes4, prefixes6;
};

struct ipamd_view {
	usec_t at;        /* CLOCK_BOOTTIME of the answer; 0: never */
	usec_t began;     /* CLOCK_BOOTTIME at which its process started; 0: not known */
	usec_t served_at; /* CLOCK_BOOTTIME at which it last answered on any way; 0: never */
	bool by_card;     /* the shape of VPC CNI 1.20 and later */
	bool more;        /* there were more ENIs than fit */
	int total, assigned, cooling;
	size_t n;
	struct ipamd_eni enis[ENIS_MAX];
};

enum region_source {
	REGION_UNKNOWN,
	REGION_METADATA,
	REGION_ENVIRONMENT,
	REGION_KUBECONFIG,
	REGION_RESOLV,
	REGION_STATE,
};

enum ec2 { EC2_UNKNOWN, EC2_YES, EC2_NO };

struct endpoint {
	char host[AWS_HOST_MAX]; /* "" while the region is not known */
	char scheme[8];          /* "https"; a custom AWS_ENDPOINT_URL may say "http" */
	uint16_t port;
	bool literal; /* the host is an address: nothing to resolve */
	size_t n;
	struct address addresses[DNS_ADDRESSES_MAX]; /* what DNS last gave */
	usec_t resolved_at;                          /* 0: never */
};

/* A clock outside this node, by the Date header of its last answer. */
enum witness { WITNESS_METADATA, WITNESS_ENDPOINT, WITNESS_APISERVER, _WITNESS_MAX };
struct witness_seen {
	int64_t offset_s; /* our wall clock minus theirs, whole seconds as the header has */
	usec_t at;        /* CLOCK_BOOTTIME; 0: never */
};

enum tristate { CANNOT_TELL, NO, YES };

/* How the VPC CNI is set up, by the environment of aws-node; all false while not known. */
struct cni_settings {
	bool known;
	bool prefix, custom, pod_eni, ipv6; /* ENABLE_PREFIX_DELEGATION, custom networking,
	                                       ENABLE_POD_ENI, ENABLE_IPv6 */
	bool external_snat, kept_ports;     /* no SNAT for pods here; it keeps their ports:
	                                       AWS_VPC_K8S_CNI_EXTERNALSNAT, _RANDOMIZESNAT */
	bool web_identity, pod_identity;    /* AWS_ROLE_ARN and token file; container credentials */
	int warm_eni, warm_ip, minimum_ip, warm_prefix; /* WARM_*_TARGET; -1: not set */
	char role_arn[160];                             /* "" when it uses the node's role */
};

struct node {
	enum ec2 ec2; /* CONTRACT.md section 1 says what decides */
	bool hybrid;  /* EKS hybrid node: no metadata, no ENIs of ours */
	char instance_id[32], instance_type[40], region[AWS_REGION_MAX], zone[40], ami_id[32],
		partition[16], domain[64], account_id[16], private_dns[128], node_name[128],
		cluster[104], runtime[64], kubelet_version[32], cni_version[32];
	char mac[MAC_TEXT_MAX]; /* of the primary ENI, by metadata */
	struct address private_ip;
	enum region_source region_source;
	bool metadata_answers; /* at the last look */
	usec_t metadata_at;    /* of the last answer; 0: never */
	struct endpoint endpoints[_SERVICE_MAX];
	struct network network;
	char role[128];            /* the role that metadata gives credentials for; "" not known */
	enum tristate sts_accepts; /* these credentials, when it was last asked */
	usec_t sts_at;             /* of that, whatever came of it; 0: never */
	struct endpoint apiserver; /* of the kubeconfig, resolved by the apiserver probe */
	struct witness_seen witnesses[_WITNESS_MAX];
	/* What kubelet, containerd and nodeadm were told to go through: host "" for none; without
	 * its user and password. What does not bypass it is asked through it. */
	struct endpoint proxy;
	bool proxy_user; /* it wants a user's name, which is not kept */
	char no_proxy[PROXY_TEXT_MAX];
	enum tristate
		registered;   /* what the API server says of our Node object, or kubelet's log */
	usec_t registered_at; /* CLOCK_BOOTTIME at which that Node was made; 0: not known */
	enum tristate ready;  /* its Ready condition */
	struct cni_settings cni;
	struct type_limits asked_limits; /* of a type that no table knows, by EC2 itself; "" */
	struct ipamd_view ipamd;
	bool kubeconfig_present;
	bool cni_log_read; /* ipamd's log was looked at, whatever came of it */
	bool asks_eks; /* its bootstrap asks EKS for the cluster: AL2's bootstrap.sh, Bottlerocket
	                */
	bool has_pods; /* the kubelet was given pods: it had registered; looked at while CNI is not
	                  ready */
};

/* What the witnesses say of our clock, taken together. Those who spoke long ago are not heard. */
struct clock_said {
	enum tristate sound; /* within CLOCK_SOUND_S, by all or by those who agree */
	unsigned heard;      /* how many spoke of late */
	unsigned agree;      /* how many of these say the same; 1: one alone, or no two agree */
	unsigned who;        /* bits of those who agree */
	int64_t offset_s;    /* ours minus theirs, by those who agree */
};
enum { CLOCK_SOUND_S = 60 };
void node_clock(const struct node *n, usec_t now, struct clock_said *ret);
const char *witness_name(enum witness w);

/* What it means for this node that a service cannot be reached. answered: it was, once, on this
 * machine. */
enum misses { MISSES_IT, MISSES_NOTHING, MISSES_UNSURE };
enum misses node_misses(const struct node *n, enum service s, bool answered, usec_t uptime);

/* Whether programs of this node go to that host through a proxy. */
bool node_is_proxied(const struct node *n, const char *host, uint16_t port);

const char *region_source_name(enum region_source s);
const char *managed_by_name(enum managed_by m); /* NULL for MANAGED_UNKNOWN */
