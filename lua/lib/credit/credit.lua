-- Credit and turns. A subscriber is in `ready_subscribers` while it may take another item, else in `idle_subscribers`; the score is the
-- token of its last delivery. Used credit is counted from the locks, or in a collection from the references, and never stored (guarantee 3).
-- CALL: known = {}
-- `known` has subscribers, with their locks once these are counted, until a lock ends in this call; each item handed out adds one.
local credit = {}

function credit.lock_count(subid)
  return redis.call('ZCOUNT', key.locks_by_subscriber, subid, subid)
end

-- Returns how many more items a subscriber may take.
function credit.room(subscriber)
  subscriber.held = credit.lock_count(subscriber.subid)
  return subscriber.limit - subscriber.held
end

-- Moves a subscriber to the ready or the idle ones by its free credit, and keeps its turn; returns it if it exists. With `reached` a
-- delivery has arrived.
function credit.update_turn(subid, reached)
  local subscriber = subscriptions.get(subid)
  if not subscriber or subscriptions.pulls(subscriber) then return nil end
  if reached then subscriptions.reset_bounces(subscriber) end
  local idle = redis.call('ZSCORE', key.idle_subscribers, subid)
  -- An acknowledgement takes no credit, so a ready subscriber stays ready.
  if reached and not idle then return subscriber end
  local free = credit.room(subscriber) > 0
  local from, to = free and key.idle_subscribers or key.ready_subscribers, free and key.ready_subscribers or key.idle_subscribers
  local served = free and idle or not free and redis.call('ZSCORE', from, subid)
  if served then
    redis.call('ZREM', from, subid)
    redis.call('ZADD', to, served, subid)
  end
  return subscriber
end

-- Updates the turn of one whose locks have changed, and what is known of it; returns it if it exists.
function credit.renew(subid, reached)
  call.credit_known[subid] = credit.update_turn(subid, reached)
  return call.credit_known[subid]
end

-- While the partition is owned, only the owner is next (E28).
local function in_turn(next_of, count, first)
  local who = partition_owner.get()
  if not who then return next_of(count, first) end
  return not who.clearing and redis.call('ZSCORE', key.ready_subscribers, who.subid) and {who.subid} or {}
end

-- Returns also those that have no line, nil for none.
local function examine(subids)
  if #subids == 0 then return {}, 0 end
  local known, lacking, found, room, gone = call.credit_known, {}, {}, 0, nil
  for i = 1, #subids do
    if not known[subids[i]] then lacking[#lacking + 1] = subids[i] end
  end
  local lines = #lacking > 0 and redis.call('HMGET', key.subscribers, unpack(lacking)) or lacking
  for i = 1, #lacking do
    if lines[i] then
      known[lacking[i]] = subscriptions.read(lacking[i], lines[i])
    else
      gone = gone or {}
      gone[#gone + 1] = lacking[i]
    end
  end
  for i = 1, #subids do
    local subscriber = known[subids[i]]
    if subscriber then
      subscriber.held = subscriber.held or credit.lock_count(subids[i])
      room = room + subscriber.limit - subscriber.held
      found[#found + 1] = subscriber
    end
  end
  return found, room, gone
end

-- Returns up to `count` subscribers with free credit, the least recently served first, and how many items they can take together.
function credit.free(count)
  return examine(in_turn(ready_subscribers.all, count, 0))
end

-- Returns subscribers that may get items here, `count` in turn, with `first` after so many.
function credit.candidates(count, first)
  local found, room, gone = examine(in_turn(ready_subscribers.for_waiting, count, first or 0))
  if gone then
    ready_subscribers.forget(gone)
    -- Others have moved up.
    if not budget.exhausted() then return credit.candidates(count, first) end
  end
  return found, room
end

-- Whether anybody but the owner has free credit here.
function credit.anybody()
  return not partition_owner.get() and redis.call('EXISTS', key.ready_subscribers) == 1
end
