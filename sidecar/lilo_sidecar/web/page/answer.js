// Asks the sidecar.

const PATIENCE = 10_000; // milliseconds for an answer, which takes a few of them

/** The sidecar wants a token, or another one. */
export class UnauthorizedError extends Error {}

/** The overview; of spans and intervals those that came after an earlier answer's `now`. */
export async function ask(after, token) {
  const query = after === null ? "" : `?after=${after.toFixed(6)}`;
  const answer = await fetch(`api/v1/overview${query}`, {
    cache: "no-store",
    credentials: "omit",
    headers: token === null ? {} : { Authorization: `Bearer ${token}` },
    signal: AbortSignal.timeout(PATIENCE),
  });
  if (answer.status === 401) throw new UnauthorizedError();
  if (!answer.ok) throw new Error(await reason(answer));
  return answer.json();
}

async function reason(answer) {
  try {
    return (await answer.json()).message;
  } catch {
    return `it answered with status ${answer.status}`;
  }
}
