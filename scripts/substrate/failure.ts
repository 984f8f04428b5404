/** A refusal as the API tells it. What is wrong inside, as the substrate does, only the daemon's log says. */
export class ApiFailure extends Error {
  readonly status: number;
  /** Machine-readable, as `image_not_ready`. */
  readonly code: string;

  constructor(status: number, code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
    this.code = code;
  }
}

/** 400: a parameter that cannot be taken; the message names it. */
export function invalidRequest(message: string): ApiFailure {
  return new ApiFailure(400, "invalid_request", message);
}

/** 404, the same for every kind of thing. */
export function notFound(): ApiFailure {
  return new ApiFailure(404, "not_found", "resource not found");
}

/** 409: not in the state that the operation needs. */
export function invalidState(message: string): ApiFailure {
  return new ApiFailure(409, "invalid_state", message);
}

/** 500, which says nothing; the cause goes into the daemon's log. */
export function internalError(message: string, cause: unknown): ApiFailure {
  return new ApiFailure(500, "internal_error", message, { cause });
}

/** A body that does not fit the API's schema. Its answer is not JSON, as the substrate's is not: quotes stand in quotes. */
export class SchemaFailure extends Error {
  constructor(path: string, problem: string) {
    super(`request body has an error: doesn't match schema: Error at "${path}": ${problem}`);
  }
}
