// Who may do what, as people say it: by the name of a role. The server has rights, and signals of the API have names.

/** The role that gives a right. */
export const ROLES = { operate: 'operator', engineer: 'engineer', administer: 'admin', approve: 'approver' } as const;

export const needsRole = (role: string) => `The role ${role} is needed.`;

/** A refusal of the server, with the role that is missing instead of the right or the signal. */
export function roleText(detail: string): string {
  const right = /^the right `?(\w+)`? is needed$/.exec(detail)?.[1];
  if (right && right in ROLES) return needsRole(ROLES[right as keyof typeof ROLES]);
  const role = /^[A-Za-z_]+ needs the role `?(\w+)`?$/.exec(detail)?.[1];
  return role ? needsRole(role) : detail;
}
