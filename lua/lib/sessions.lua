-- Sessions of frontends. A frontend that has lost a reply begins another session, and nothing that it sent before runs any more.
local sessions = {}

-- Ends the caller's earlier sessions. By its mark the frontend is found here when it has lapsed.
function sessions.begin()
  redis.call('HSET', key.meta, 'session/' .. arg.frontend, string.format('%d', call.partition_session))
  if redis.call('HEXISTS', key.send_marks, arg.frontend) == 0 then redis.call('HSET', key.send_marks, arg.frontend, '0') end
end

-- Forgets the mark and the session of a frontend that has resigned or lapsed.
function sessions.forget(frontend)
  redis.call('HDEL', key.send_marks, frontend)
  local session = 'session/' .. frontend
  if call.partition_before[session] then redis.call('HDEL', key.meta, session) end
end
