#!lua
-- Store a message until its sender sends `deliver`. The first copy of a name counts (S10); a copy of a delivered message is not stored
-- again (SX9); a delivered name with another message is a new one (SX10). Within limits (S19, S20).
-- ARGV: now window_ms source_messages source_bytes total_messages total_bytes remembered name record
-- RETURNS: ok too-much-held
local now = clock.now()
prepared_messages.tidy(now)
if redis.call('HEXISTS', key.prepared, arg.name) == 1 or delivered_ids.has(arg.name, delivered_ids.digest(arg.record)) then
  return {'ok'}
end
if not prepared_quota.has_room(arg.name, #arg.name + #arg.record)
  -- Forgetting a delivered id early would allow a second delivery. Rather refuse new messages until the window has moved.
  or delivered_ids.count() >= tonumber(arg.remembered) then
  return {'too-much-held'}
end
delivered_ids.reopen(now, tonumber(arg.window_ms), arg.name)
prepared_messages.keep(now, arg.name, arg.record)
return {'ok'}
