-- Items on their way to another node, dead letters and those that an owner sends: recorded here until `handed` says that they
-- have arrived there, so that a crash between the two steps repeats the hand-over and loses nothing. Record: `at attempts
-- jid-length jid reason`; of what is sent `>NODE` stands in the place of the JID, and no JID begins so.
-- NEEDS: handover index history
-- LAZY: where items go to another node
--- @include due partition writes positions entries ordering hints
local handover = {made = {}}

local function reply(position, entry, attempts, jid, reason)
  handover.made[#handover.made + 1] = {position, entry.item ~= '' and entry.item or positions.item_id(position), entry.by,
    entry.body, attempts, jid, reason, entry.key}
end

-- The item leaves the queue: its id is free for a new item from now on.
function handover.start(position, entry, attempts, jid, reason)
  writes.add('HSET', key.handover, position,
    string.format('%d %d %d ', partition.now, attempts, #jid) .. jid .. ' ' .. reason)
  writes.add('HDEL', key.history, position)
  if entry.item ~= '' then writes.add('HDEL', key.index, entry.item) end
  if partition.hinted then hints.forget(position) end
  ordering.done(position)
  reply(position, entry, attempts, jid, reason)
end

-- Takes up those whose first hand-over nobody finished.
function handover.resume()
  local found = redis.call('HSCAN', key.handover, 0, 'COUNT', 50)[2]
  for i = 1, #found, 2 do
    local at, attempts, length, rest = string.match(found[i + 1], '^(%d+) (%d+) (%d+) (.*)$')
    local entry, again = entries.current(found[i]), tonumber(at) + due.RETRY_MS
    if not entry then
      redis.call('HDEL', key.handover, found[i])
    elseif again > partition.now then
      due.retry_at = math.min(again, due.retry_at or again)
    else
      reply(found[i], entry, tonumber(attempts), string.sub(rest, 1, tonumber(length)),
        string.sub(rest, tonumber(length) + 2))
    end
  end
end
