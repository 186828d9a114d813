-- Sessions of frontends. A frontend that has lost a reply begins a new session; nothing of an earlier one runs any more.
local sessions = {}

-- Ends the caller's earlier sessions. It gets a sent mark, by which its session is found and removed once it is dead.
function sessions.begin()
  redis.call('HSET', key.meta, 'session/' .. arg.frontend, string.format('%d', call.partition_session))
  if redis.call('HEXISTS', key.send_marks, arg.frontend) == 0 then redis.call('HSET', key.send_marks, arg.frontend, '0') end
end

-- Removes the sent mark and the session of a frontend that has stopped or is dead.
function sessions.forget(frontend)
  redis.call('HDEL', key.send_marks, frontend)
  local session = 'session/' .. frontend
  if call.partition_before[session] then redis.call('HDEL', key.meta, session) end
end
