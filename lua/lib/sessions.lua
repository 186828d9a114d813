-- Sessions of frontends. A frontend that has lost a reply begins a new session; nothing of an earlier one runs any more.
local sessions = {}

local function name(frontend)
  return 'session/' .. frontend
end

-- Whether a field of `meta` is the session of a frontend.
function sessions.is_one(field)
  return string.sub(field, 1, 8) == 'session/'
end

-- Ends the caller's earlier sessions.
function sessions.begin()
  redis.call('HSET', key.meta, name(arg.frontend), string.format('%d', call.partition_session))
end

-- Removes the session of a frontend that is dead or has stopped.
function sessions.forget(frontend)
  if call.partition_before[name(frontend)] then redis.call('HDEL', key.meta, name(frontend)) end
end
