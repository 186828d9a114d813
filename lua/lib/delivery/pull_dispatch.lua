-- Dispatch for a caller that cannot send: it hands items to pull subscribers only. To be fair it stops at the first subscriber in turn
-- that is sent its items, and a frontend continues. While no frontend lives it skips such subscribers, up to `MOST`.
-- CALL: owed = false
local pull_dispatch = {MOST = 1000}

-- As `credit.candidates`. A queue that is `cut` is followed by a subscriber that is sent its items, so each in the queue gets one item.
function pull_dispatch.candidates(count)
  local first = 0
  while true do
    local queue, room = {}, 0
    local part = credit.candidates(count, first)
    for _, subscriber in ipairs(part) do
      if subscriptions.pulls(subscriber) then
        queue[#queue + 1] = subscriber
        room = room + subscriber.limit - subscriber.held
      elseif not call.caller_alone then
        call.pull_dispatch_owed, queue.cut = true, true
        return queue, #queue
      end
    end
    first = first + count
    if #queue > 0 or #part < count or first >= pull_dispatch.MOST then return queue, room end
  end
end

-- Whether a frontend has to continue with what this caller could not hand out.
function pull_dispatch.frontend_is_due()
  if call.caller_sends or call.caller_alone then return false end
  local waits = call.partition_selects or call.partition_cursor ~= call.partition_tail or redis.call('EXISTS', key.ready) == 1
    or call.partition_hinted and scheduling.has_ranks(0, scheduling.LAST)
  return call.partition_streams or (call.pull_dispatch_owed and waits)
end
